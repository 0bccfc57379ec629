"""The workload: noisy clips of a three-digit display, with what it shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from circinus.pipelines.catalog.digits.geometry import (
    DIGITS,
    FRAMES,
    GLYPH,
    HEIGHT,
    PITCH,
    WIDTH,
    FloatArray,
    UInt8Array,
)
from circinus.pipelines.catalog.digits.glyphs import Glyphs, split_glyphs
from circinus.pipelines.catalog.material import grey, speckle


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A clip and what it shows."""

    frames: UInt8Array  # uint8 (12, 64, 112)
    digits: str  # what the display reads, three characters
    glyphs: tuple[int, ...]  # rows of scikit-learn's digits that are shown, left to right


def draw_clip(rng: np.random.Generator, light: float = 1.0) -> Clip:
    """A clip of three held-out digits under noise, specks, rotation, shake and an occluder.

    A seed names the same scenes in any light, in (0, 1] of the usual; noise and specks stay.
    """
    _, glyphs = split_glyphs()
    rows = rng.integers(len(glyphs.labels), size=DIGITS)
    background, contrast = rng.uniform(30, 80), rng.uniform(100, 175)
    noise = 15 + 105 * rng.random() ** 1.5
    specks = rng.uniform(0.02, 0.2) if rng.random() < 0.5 else 0.0
    angle = np.deg2rad(rng.uniform(-10, 10))
    shift = np.array([rng.uniform(-3.5, 3.5), rng.uniform(-4, 4)])
    shake = rng.uniform(0.3, 1.5)
    width = int(rng.integers(8, 20)) if rng.random() < 0.5 else 0
    occluder = rng.uniform(0, 200)
    moves = shift + shake * rng.standard_normal((FRAMES, 2))
    frames = background + contrast * _moving(_display(glyphs, rows), angle, moves)
    _occlude(frames, width, occluder, rng)
    frames *= light
    frames += noise * rng.standard_normal(frames.shape, dtype=np.float32)
    speckle(frames, specks, rng)
    return Clip(
        frames=grey(frames),
        digits="".join(str(label) for label in glyphs.labels[rows]),
        glyphs=tuple(int(index) for index in glyphs.indices[rows]),
    )


def _display(glyphs: Glyphs, rows: NDArray[np.int64]) -> FloatArray:
    canvas = np.zeros((HEIGHT, WIDTH), dtype=np.float32)
    top = (HEIGHT - GLYPH) // 2
    for place, row in enumerate(rows):
        left = WIDTH // 2 + (place - DIGITS // 2) * PITCH - GLYPH // 2
        ink = ndimage.zoom(glyphs.images[row], GLYPH / 8, order=1, grid_mode=True, mode="nearest")
        canvas[top : top + GLYPH, left : left + GLYPH] = ink
    return canvas  # (HEIGHT, WIDTH)


def _moving(display: FloatArray, angle: float, moves: NDArray[np.float64]) -> FloatArray:
    """Frames of the display, turned, each moved down and to the right by pixels (FRAMES, 2)."""
    centre = np.array([(HEIGHT - 1) / 2, (WIDTH - 1) / 2])
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]])  # output pixel -> display pixel: the way back
    frames = [
        ndimage.affine_transform(display, turn, offset=centre - turn @ (centre + move), order=1)
        for move in moves
    ]
    return np.stack(frames)


def _occlude(frames: FloatArray, width: int, level: float, rng: np.random.Generator) -> None:
    """Draw a bar that crosses the frame during the clip, in place."""
    left = rng.uniform(0, WIDTH)
    speed = rng.uniform(-8, 8)
    for time, frame in enumerate(frames):
        start = int(left + speed * time) % WIDTH
        frame[:, start : start + width] = level


def clip_features(clip: UInt8Array) -> NDArray[np.float64]:  # (FRAMES, HEIGHT, WIDTH)
    """How hard a clip looks, from its first frame, for stratified sampling.

    Gives (5,): noise level (robust standard deviation of the difference of neighbouring pixels,
    Rousseeuw and Croux 1993), mean brightness, contrast (range of the smoothed frame between its
    5th and 95th percentile), share of black and white pixels, mean change to the last frame; all
    but the share in grey levels.
    """
    first = clip[0].astype(np.float32)
    steps = np.diff(first, axis=1)
    smooth = ndimage.uniform_filter(first, 7)
    low, high = np.percentile(smooth, [5, 95])
    return np.array(
        [
            1.4826 * np.median(np.abs(steps)) / np.sqrt(2),
            first.mean(),
            high - low,
            np.mean((clip[0] == 0) | (clip[0] == 255)),
            np.abs(smooth - ndimage.uniform_filter(clip[-1].astype(np.float32), 7)).mean(),
        ]
    )
