"""The workload: textured sprites that move over a photograph, with where each one is.

One rule: everything about a clip is drawn from the generator handed in, so that a seed names a
workload. How hard the clips are (noise, light, shake, speed, rests) is a design choice: it spreads
the accuracies of the configurations, and says nothing about the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.catalog.tracking.handed_over import (
    FRAMES,
    HEIGHT,
    MARGIN,
    WIDTH,
    BoxArray,
    UInt8Array,
)
from pipelines.catalog.tracking.opencv import opencv
from pipelines.catalog.tracking.sprites import Sprite, drawn_sprites

SEEN = 0.3
"""Share of a sprite that must be seen in a frame, else nobody is expected to find it there."""
NOISE_FRAMES = 3
"""Frames' worth of noise drawn for a clip; each frame takes it from another place on. Drawing
noise for each pixel of a clip would take most of the time of making it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A clip and what moves in it.

    Attributes:
        frames: uint8 (FRAMES, HEIGHT, WIDTH).
        tracks: int16 (n, 6): frame, identity, x, y, w, h of each sprite that can be seen.
    """

    frames: UInt8Array
    tracks: BoxArray


def draw_clip(rng: np.random.Generator, tiles: Sequence[UInt8Array]) -> Clip:
    """A clip of 3 to 10 sprites under noise, flickering light, shake and mutual occlusion.

    Args:
        rng: All is drawn from it.
        tiles: Pieces of photographs, grey, about 200 pixels square: what the background and the
            sprites look like.
    """
    background = _background(rng, tiles)
    sprites = drawn_sprites(rng, tiles, float(background.mean()))
    camera = _camera(rng)
    light = _light(rng)
    noise = _Noise.drawn(rng)
    frames = np.empty((FRAMES, HEIGHT, WIDTH), dtype=np.uint8)
    rows: list[list[int]] = []
    for time, frame in enumerate(frames):
        scene, owners = _painted(background, sprites, time)
        y, x = camera[time]
        view = slice(y, y + HEIGHT), slice(x, x + WIDTH)
        frame[:] = noise.over(scene[view], float(light[time]), rng)
        rows += _boxes(owners[view], sprites, time, (y, x))
    return Clip(frames=frames, tracks=np.array(rows, dtype=np.int16).reshape(-1, 6))


def _background(rng: np.random.Generator, tiles: Sequence[UInt8Array]) -> UInt8Array:
    cv2 = opencv()
    tile = tiles[int(rng.integers(len(tiles)))]
    height, width = HEIGHT + 2 * MARGIN, WIDTH + 2 * MARGIN
    part = tile[:, ::-1] if rng.random() < 0.5 else tile
    rows = len(part[0]) * height // width
    top = int(rng.integers(0, len(part) - rows + 1))
    part = np.ascontiguousarray(part[top : top + rows])
    return np.asarray(cv2.resize(part, (width, height)), dtype=np.uint8)


def _camera(rng: np.random.Generator) -> NDArray[np.int64]:  # (FRAMES, 2), corner of the view
    """Some cameras stand still, most shake and turn away slowly."""
    strength = rng.uniform(0.3, 1.2) if rng.random() < 0.65 else 0.0
    turn = strength * rng.uniform(-20, 20, 2) * np.linspace(-1, 1, FRAMES)[:, None]
    moves = np.rint(turn + 2 * strength * rng.standard_normal((FRAMES, 2))).astype(np.int64)
    return np.asarray(MARGIN + np.clip(moves, -MARGIN, MARGIN), dtype=np.int64)


def _light(rng: np.random.Generator) -> NDArray[np.float64]:  # (FRAMES,), times the usual
    strength = rng.uniform(0.02, 0.12) if rng.random() < 0.5 else 0.0
    return 1.0 + strength * np.clip(rng.standard_normal(FRAMES), -2, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Noise of one strength, enough for some frames."""

    values: NDArray[np.int16]  # (NOISE_FRAMES * HEIGHT * WIDTH,)

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> _Noise:
        strength = np.float32(2 + 26 * rng.random() ** 1.5)
        count = NOISE_FRAMES * HEIGHT * WIDTH
        values = strength * rng.standard_normal(count, dtype=np.float32)
        return cls(values=np.rint(values).astype(np.int16))

    def over(self, view: UInt8Array, light: float, rng: np.random.Generator) -> UInt8Array:
        cv2 = opencv()
        start = int(rng.integers(0, len(self.values) - view.size + 1))
        noise = self.values[start : start + view.size].reshape(view.shape)
        lit = cv2.convertScaleAbs(view, alpha=light)
        return np.asarray(cv2.add(lit, noise, dtype=cv2.CV_8U), dtype=np.uint8)


def _painted(
    background: UInt8Array, sprites: Sequence[Sprite], time: int
) -> tuple[UInt8Array, NDArray[np.int8]]:
    """The scene, and whose each pixel is: a sprite's number, or -1. Later sprites hide earlier."""
    scene = background.copy()
    owners = np.full(scene.shape, -1, dtype=np.int8)
    for number, sprite in enumerate(sprites):
        (y, x), (height, width) = sprite.path[time], sprite.shape.shape
        place = slice(y, y + height), slice(x, x + width)
        np.copyto(scene[place], sprite.texture, where=sprite.shape)
        np.copyto(owners[place], np.int8(number), where=sprite.shape)
    return scene, owners


def _boxes(
    owners: NDArray[np.int8],  # (HEIGHT, WIDTH)
    sprites: Sequence[Sprite],
    time: int,
    corner: tuple[int, int],
) -> list[list[int]]:
    """Whole boxes, also of what is half hidden, cut at the edges of the frame."""
    seen = np.bincount(owners.ravel() + 1, minlength=len(sprites) + 1)[1:]
    rows = []
    for number, sprite in enumerate(sprites):
        if seen[number] < SEEN * sprite.shape.sum():
            continue
        low = np.maximum(sprite.path[time] - corner, 0)
        high = np.minimum(sprite.path[time] - corner + sprite.shape.shape, (HEIGHT, WIDTH))
        (y, x), (height, width) = low.tolist(), (high - low).tolist()
        rows.append([time, number, x, y, width, height])
    return rows
