"""The workload: noisy clips of a three-digit display, with what it shows.

The handwritten digits, split once into those to learn from and those to show.

A digit in a clip was in no classifier's training set. What classifiers learn from are
crops drawn as a located digit looks, directly and never through the operators, so every
configuration meets classifiers that know none of its violations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from circinus.pipelines.catalog.digits.describing import described_crops
from circinus.pipelines.catalog.digits.geometry import (
    CROP,
    DIGITS,
    FRAMES,
    GLYPH,
    HEIGHT,
    PITCH,
    WIDTH,
    WINDOW,
    FloatArray,
    IntArray,
    UInt8Array,
)
from circinus.pipelines.catalog.material import grey, speckle


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A clip and what it shows."""

    frames: UInt8Array  # uint8 (12, 64, 112)
    digits: str  # what the display reads, three characters
    glyphs: tuple[int, ...]  # rows of scikit-learn's digits in the clip, left to right


def draw_clip(rng: np.random.Generator, light: float = 1.0) -> Clip:
    """Return a clip of three held-out digits under noise, specks, rotation, shake and an occluder.

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
    """Return frames of the turned display, each moved down and right by pixels (FRAMES, 2)."""
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
    """Return how hard a clip looks, from its first frame, for stratified sampling.

    Shape (5,): noise level (robust standard deviation of the difference of neighbouring pixels,
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


SPLIT_SEED = 1797
TRAINING_DIGITS = 1000  # of the 1,797; the other 797 are in clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Handwritten digits with their labels."""

    images: FloatArray  # ink in [0, 1], float32 (n_glyphs, 8, 8)
    labels: IntArray  # digit shown, 0-9, int64 (n_glyphs,)
    indices: IntArray  # row of each in scikit-learn's digits, int64 (n_glyphs,)


@cache
def split_glyphs() -> tuple[Glyphs, Glyphs]:
    """Return the digits that classifiers learn from, and those that clips show."""
    images, labels = _scikit_learn_digits()
    ink = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(ink))
    first, second = (
        Glyphs(images=ink[rows], labels=labels[rows].astype(np.int64), indices=rows)
        for rows in (np.sort(order[:TRAINING_DIGITS]), np.sort(order[TRAINING_DIGITS:]))
    )
    return first, second


def _scikit_learn_digits() -> tuple[NDArray[np.float64], IntArray]:  # (1797, 64), (1797,)
    """Return images and labels, from the library's file where it is: an import takes a second."""
    spec = find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            rows = np.loadtxt(file, delimiter=",")
            return rows[:, :-1], rows[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels


COPIES = 4  # crops per training digit, each distorted anew
TRAINING_SEED = 8


def training_set(kind: str) -> tuple[FloatArray, IntArray]:  # (n, n_features), (n,)
    """Return features of that kind of the training crops, and the digits they show."""
    crops, labels = _crops()
    return described_crops(crops[:, None], kind=kind)[:, 0], labels


@cache
def _crops() -> tuple[UInt8Array, IntArray]:  # (n_samples, CROP, CROP), (n_samples,)
    rng = np.random.Generator(np.random.PCG64(TRAINING_SEED))
    glyphs, _ = split_glyphs()
    crops = [_distorted(ink, rng) for _ in range(COPIES) for ink in glyphs.images]
    return np.stack(crops), np.tile(glyphs.labels, COPIES)


def _distorted(ink: FloatArray, rng: np.random.Generator) -> UInt8Array:  # -> (CROP, CROP)
    """Return a digit turned, moved, resized, under noise, half of the time blurred."""
    angle = np.deg2rad(rng.uniform(-15, 15))
    size = CROP * GLYPH / WINDOW / len(ink) * rng.uniform(0.88, 1.12)  # samples per ink pixel
    move = rng.normal(0, 0.9, size=2)
    cos, sin = np.cos(angle) / size, np.sin(angle) / size
    turn = np.array([[cos, -sin], [sin, cos]])
    centre = (len(ink) - 1) / 2 - turn @ ((CROP - 1) / 2 + move)
    light = ndimage.affine_transform(ink, turn, centre, output_shape=(CROP, CROP), order=1)
    image = rng.uniform(30, 80) + rng.uniform(100, 175) * light
    image += rng.uniform(5, 65) * rng.standard_normal(image.shape)
    if rng.random() < 0.5:
        image = ndimage.gaussian_filter(image, rng.uniform(0.3, 0.8))
    return grey(image)
