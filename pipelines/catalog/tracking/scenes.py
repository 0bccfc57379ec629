"""The workload: textured sprites that move over a photograph, with where each one is.

Clips are made of scikit-learn's two sample photographs, cut into tiles. What makes them hard is
noise, light, shake, speed and rests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.catalog.tracking.footage import FRAMES, HEIGHT, MARGIN, WIDTH, UInt8Array
from circinus.pipelines.io.datasets import Example

SEEN = 0.3
"""Share of a sprite that must be seen in a frame, else nobody is expected to find it there."""
NOISE_FRAMES = 3
"""Frames' worth of noise drawn for a clip; each frame takes it from another place on. Drawing
noise for each pixel of a clip would take most of the time of making it."""


def draw_clip(rng: np.random.Generator, tiles: Sequence[UInt8Array]) -> Example:
    """A clip of 3 to 10 sprites under noise, flickering light, shake and mutual occlusion.

    It is uint8 (FRAMES, HEIGHT, WIDTH); expected are the tracks, int16 (n, 6): frame, identity,
    x, y, w, h of each sprite that can be seen. Background and sprites look like the tiles, pieces
    of grey photographs of about 200 pixels square.
    """
    background = _background(rng, tiles)
    sprites = drawn_sprites(rng, tiles, float(background.mean()))
    camera = _camera(rng)
    light = _light(rng)
    noise = _noise(rng)
    frames = np.empty((FRAMES, HEIGHT, WIDTH), dtype=np.uint8)
    rows: list[list[int]] = []
    for time, frame in enumerate(frames):
        scene, owners = _painted(background, sprites, time)
        y, x = camera[time]
        view = slice(y, y + HEIGHT), slice(x, x + WIDTH)
        frame[:] = _seen(scene[view], float(light[time]), noise, rng)
        rows += _boxes(owners[view], sprites, time, (y, x))
    return Example(input=frames, expected=np.array(rows, dtype=np.int16).reshape(-1, 6))


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


def _noise(rng: np.random.Generator) -> NDArray[np.int16]:  # (NOISE_FRAMES * HEIGHT * WIDTH,)
    """Noise of one strength, enough for some frames."""
    strength = np.float32(2 + 26 * rng.random() ** 1.5)
    values = strength * rng.standard_normal(NOISE_FRAMES * HEIGHT * WIDTH, dtype=np.float32)
    return np.asarray(np.rint(values), dtype=np.int16)


def _seen(
    view: UInt8Array, light: float, noise: NDArray[np.int16], rng: np.random.Generator
) -> UInt8Array:
    """The view, lit, under some of the noise."""
    cv2 = opencv()
    start = int(rng.integers(0, len(noise) - view.size + 1))
    here = noise[start : start + view.size].reshape(view.shape)
    lit = cv2.convertScaleAbs(view, alpha=light)
    return np.asarray(cv2.add(lit, here, dtype=cv2.CV_8U), dtype=np.uint8)


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
    owners: NDArray[np.int8], sprites: Sequence[Sprite], time: int, corner: tuple[int, int]
) -> list[list[int]]:  # owners (HEIGHT, WIDTH)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprite:
    """A textured ellipse and its way."""

    texture: UInt8Array  # uint8 (height, width)
    shape: NDArray[np.bool_]  # which of its pixels are seen, bool (height, width)
    path: NDArray[np.int64]  # its corner (y, x) in the scene at each time, (FRAMES, 2)


def drawn_sprites(
    rng: np.random.Generator, tiles: Sequence[UInt8Array], behind: float
) -> list[Sprite]:
    """From 3 to 10 sprites, textured as the tiles, before a background of that mean grey."""
    pace = rng.uniform(1.0, 8.0)  # slow or fast all together: that decides what a stride does
    greys = _greys(rng, behind, count=int(rng.integers(3, 11)))
    return [_sprite(rng, tiles, grey, pace) for grey in greys]


def _greys(rng: np.random.Generator, behind: float, *, count: int) -> list[float]:
    """Mean greys, off the background's; alike in half of the clips: there a look tells little."""
    steps = rng.uniform(50, 205, count)
    alike = steps[0] + rng.normal(0, 10, count)
    chosen = alike if rng.random() < 0.5 else steps
    return [float(grey) for grey in np.mod(behind + chosen, 255)]


def _sprite(
    rng: np.random.Generator, tiles: Sequence[UInt8Array], grey: float, pace: float
) -> Sprite:
    height, width = (int(side) for side in rng.integers((13, 13), (42, 40)))
    tile = tiles[int(rng.integers(len(tiles)))]
    y, x = (rng.integers(0, n - m) for n, m in zip(tile.shape, (height, width), strict=True))
    patch = tile[y : y + height, x : x + width].astype(np.float32)
    patch = grey + rng.uniform(0.5, 1.5) * (patch - patch.mean())
    rows, columns = np.ogrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    return Sprite(
        texture=np.clip(patch, 0, 255).astype(np.uint8),
        shape=rows**2 + columns**2 <= 1,
        path=_path(rng, (HEIGHT - height, WIDTH - width), pace),
    )


def _path(rng: np.random.Generator, room: tuple[int, int], pace: float) -> NDArray[np.int64]:
    """Straight on, reflected at the edges; some rest for a while, where differences lose them."""
    speed = np.full(FRAMES, pace * rng.uniform(0.6, 1.4))
    if rng.random() < 0.3:
        start = rng.integers(6, FRAMES - 6)
        speed[start : start + rng.integers(4, 14)] = 0.0
    heading = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.normal(0, 0.17, FRAMES))
    steps = speed[:, None] * np.stack([np.sin(heading), np.cos(heading)], axis=1)
    limits = np.array(room)
    way = rng.uniform(0, limits) + np.cumsum(steps, axis=0)
    folded = limits - np.abs(np.mod(way, 2 * limits) - limits)
    return np.asarray(MARGIN + np.rint(folded), dtype=np.int64)  # (FRAMES, 2)


PHOTOGRAPHS = ("china.jpg", "flower.jpg")
ROWS, COLUMNS = 2, 3
"""Tiles of a photograph: 213 x 213 pixels, twelve in all, so four for a seed to draw from."""


@cache
def tiles() -> tuple[UInt8Array, ...]:
    """The tiles in grey, disjoint, in a fixed order; read-only."""
    return tuple(
        tile
        for photograph in map(_photograph, PHOTOGRAPHS)
        for row in np.array_split(photograph, ROWS, axis=0)
        for tile in np.array_split(row, COLUMNS, axis=1)
    )


def _photograph(name: str) -> UInt8Array:
    """In grey, read-only; found without importing scikit-learn, which takes a second."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("sklearn")
    cv2 = opencv()
    path = Path(spec.origin).parent / "datasets" / "images" / name
    grey = np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), dtype=np.uint8)
    grey.flags.writeable = False
    return grey


def clip_features(clip: UInt8Array) -> NDArray[np.float64]:  # (n_frames, height, width)
    """How hard a clip looks, from a few of its pixels, for stratified sampling.

    Gives (5,): noise level (robust standard deviation of the steps between neighbouring pixels of
    the first frame), light (standard deviation of the frames' brightness), change (mean, then 99th
    percentile of the change over the clip, noise not taken off), and shake (mean change from the
    first frame to the second); all in grey levels.
    """
    steps = np.diff(clip[0, ::9].astype(np.float32), axis=1)
    coarse = clip[:, 4::24, 4::24].astype(np.float32)
    spread = np.abs(coarse[::6] - np.median(coarse[::6], axis=0))
    return np.array(
        [
            1.4826 / np.sqrt(2) * np.median(np.abs(steps)),
            coarse.mean(axis=(1, 2)).std(),
            spread.mean(),
            np.percentile(spread, 99),
            np.abs(coarse[1] - coarse[0]).mean(),
        ]
    )
