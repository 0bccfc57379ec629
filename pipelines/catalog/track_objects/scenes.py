"""The workload: cut-outs of photographed objects that move over photographs, with exact boxes.

Persons and other things cross the picture, grow or shrink as they come nearer or go away, hide
each other, and reverse at its edges. Distance, noise, light and blur make clips hard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import PARTS, opencv
from circinus.pipelines.catalog.track_objects.pictures import (
    CutOut,
    backgrounds,
    objects,
    persons,
)
from circinus.pipelines.catalog.tracking.footage import LEAST_VISIBLE, FloatArray, UInt8Array
from circinus.pipelines.io.datasets import Example

FRAMES, HEIGHT, WIDTH = 24, 288, 384  # shape of the clips that the pipeline's own examples have
FEWEST, MOST = 3, 7  # objects of a clip
SIZES = (40.0, 125.0)  # pixels of an object's longer side, in the middle of the clip
OTHERS = 0.3  # chance that a clip shows something that is no person


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """An object of a clip: how it looks, and where its centre and how large it is over time."""

    picture: CutOut
    centres: FloatArray  # (FRAMES, 2): y, x
    scales: FloatArray  # (FRAMES,): pixels of the clip per pixel of the picture

    def at(self, time: int) -> tuple[CutOut, tuple[int, int]]:
        """Return its picture in the size of a frame, and its upper left corner (y, x)."""
        cv2 = opencv()
        height, width = self.picture.shape.shape
        scale = self.scales[time]
        size = max(2, round(width * scale)), max(2, round(height * scale))
        image = cv2.resize(self.picture.image, size, interpolation=cv2.INTER_AREA)
        shape = cv2.resize(self.picture.shape, size, interpolation=cv2.INTER_AREA)
        y, x = self.centres[time]
        return CutOut(image=image, shape=shape), (round(y - size[1] / 2), round(x - size[0] / 2))


def draw_clip(rng: np.random.Generator, seed: int) -> Example:
    """Return a clip, uint8 (FRAMES, HEIGHT, WIDTH, 3), and its tracks, int16 (n, 6).

    Rows are frame, identity, x, y, w, h of each visible object. Pictures are of the seed's part.
    """
    background = _background(rng, backgrounds(seed % PARTS))
    movers = _movers(rng, seed % PARTS)
    camera = _Camera.drawn(rng)
    frames = np.empty((FRAMES, HEIGHT, WIDTH, 3), dtype=np.uint8)
    rows: list[list[int]] = []
    for time, frame in enumerate(frames):
        scene, owners = _painted(background, movers, time)
        frame[:] = camera.recorded(scene, time, rng)
        rows += _boxes(owners, movers, time)
    return Example(input=frames, expected=np.array(rows, dtype=np.int16).reshape(-1, 6))


def _background(rng: np.random.Generator, places: Sequence[UInt8Array]) -> UInt8Array:
    """Return most of a photograph, perhaps mirrored, in the clip's size."""
    cv2 = opencv()
    place = places[int(rng.integers(len(places)))]
    part = place[:, ::-1] if rng.random() < 0.5 else place
    height, width = part.shape[:2]
    share = rng.uniform(0.7, 1.0) * min(width / WIDTH, height / HEIGHT)
    rows, columns = int(share * HEIGHT), int(share * WIDTH)
    y, x = (int(rng.integers(0, n + 1)) for n in (height - rows, width - columns))
    view = np.ascontiguousarray(part[y : y + rows, x : x + columns])
    return np.asarray(cv2.resize(view, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))


def _movers(rng: np.random.Generator, part: int) -> list[Mover]:
    """Return some objects, each another one; later ones hide earlier ones."""
    people, others = persons(part), objects(part)
    count = int(rng.integers(FEWEST, MOST + 1))
    chosen = [people[at] for at in rng.permutation(len(people))[:count]]
    if rng.random() < OTHERS:
        chosen[0] = others[int(rng.integers(len(others)))]
    pace = rng.uniform(2.0, 13.0)  # pixels per frame
    return [_mover(rng, picture, pace) for picture in chosen]


def _mover(rng: np.random.Generator, picture: CutOut, pace: float) -> Mover:
    if rng.random() < 0.5:
        picture = CutOut(image=picture.image[:, ::-1], shape=picture.shape[:, ::-1])
    sides = np.array(picture.shape.shape)
    growth = np.geomspace(1.0, rng.uniform(0.7, 1.4), FRAMES)
    scales = np.exp(rng.uniform(*np.log(SIZES))) / sides.max() * growth / growth[FRAMES // 2]
    scales = np.minimum(scales, 0.9 * HEIGHT / sides.max())
    room = np.array([HEIGHT, WIDTH]) - scales[:, None] * sides  # (FRAMES, 2)
    heading = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.normal(0, 0.15, FRAMES))
    steps = pace * rng.uniform(0.6, 1.4) * np.stack([0.4 * np.sin(heading), np.cos(heading)], 1)
    way = rng.uniform(0, room[0]) + np.cumsum(steps, axis=0)
    folded = room - np.abs(np.mod(way, 2 * room) - room)  # reverses where it would leave
    return Mover(picture=picture, centres=folded + scales[:, None] * sides / 2, scales=scales)


_NOISE_FRAMES = 2
"""Frames' worth of noise drawn for a clip; each frame takes it from another place on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Camera:
    """What the recording adds: a blur, light that changes, and noise."""

    blur: float  # standard deviation, pixels
    light: FloatArray  # (FRAMES,), times the usual
    noise: NDArray[np.int16]  # (_NOISE_FRAMES * HEIGHT * WIDTH * 3,), grey levels

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> _Camera:
        """Return a camera: some are good, some are not."""
        strength = np.float32(18 * rng.random() ** 1.5)
        values = rng.standard_normal(_NOISE_FRAMES * HEIGHT * WIDTH * 3, dtype=np.float32)
        level, flicker = rng.uniform(0.6, 1.15), rng.uniform(0.0, 0.06)
        return cls(
            blur=float(rng.choice([0.0, 0.7, 1.2])),
            light=level + flicker * np.clip(rng.standard_normal(FRAMES), -2, 2),
            noise=np.rint(strength * values).astype(np.int16),
        )

    def recorded(self, scene: UInt8Array, time: int, rng: np.random.Generator) -> UInt8Array:
        """Return a frame as it is recorded."""
        cv2 = opencv()
        start = int(rng.integers(0, len(self.noise) - scene.size + 1))
        noise = self.noise[start : start + scene.size].reshape(scene.shape)
        sharp = cv2.GaussianBlur(scene, (5, 5), self.blur) if self.blur else scene
        lit = cv2.convertScaleAbs(sharp, alpha=float(self.light[time]))
        return np.asarray(cv2.add(lit, noise, dtype=cv2.CV_8U), dtype=np.uint8)


_SOFT = 0.8  # pixels: edges of a cut-out are mixed with what is behind them


def _painted(
    background: UInt8Array, movers: Sequence[Mover], time: int
) -> tuple[UInt8Array, NDArray[np.int8]]:
    """Return the scene, and the mover of each pixel, or -1."""
    cv2 = opencv()
    scene = background.copy()
    owners = np.full(scene.shape[:2], -1, dtype=np.int8)
    for number, mover in enumerate(movers):
        picture, (y, x) = mover.at(time)
        y, x = max(0, y), max(0, x)
        place = slice(y, y + len(picture.shape)), slice(x, x + picture.shape.shape[1])
        height, width = owners[place].shape
        shape, image = picture.shape[:height, :width], picture.image[:height, :width]
        share = (cv2.GaussianBlur(shape, (3, 3), _SOFT) / np.float32(255))[..., None]
        scene[place] = np.rint(image * share + scene[place] * (1 - share)).astype(np.uint8)
        np.copyto(owners[place], np.int8(number), where=shape > 127)
    return scene, owners


def _boxes(owners: NDArray[np.int8], movers: Sequence[Mover], time: int) -> list[list[int]]:
    """Return whole boxes, also of what is half hidden, cut at the edges of the frame."""
    visible = np.bincount(owners.ravel() + 1, minlength=len(movers) + 1)[1:]
    rows = []
    for number, mover in enumerate(movers):
        picture, (y, x) = mover.at(time)
        if visible[number] < LEAST_VISIBLE * np.count_nonzero(picture.shape > 127):
            continue
        y, x = max(0, y), max(0, x)
        height, width = picture.shape.shape
        rows.append([time, number, x, y, min(width, WIDTH - x), min(height, HEIGHT - y)])
    return rows
