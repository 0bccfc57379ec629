"""The workload: textured sprites that move over a photograph, and what operators exchange of it.

Boxes are (x, y, w, h) in pixels of the clip's own frames, and times are numbers of its own frames,
whatever was left out or shrunk; so `stride`, `scale` and `length` travel along. Clips are made of
scikit-learn's two sample photographs. Noise, light, shake, speed and rests make them hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import Number, checked_array, described
from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload

FRAMES, HEIGHT, WIDTH = 48, 270, 480  # shape of the clips that the pipeline's own examples have
MARGIN = 28  # pixels of their scenes on each side of the frame, for the camera to move in
FEWEST_FRAMES, MOST_FRAMES = 8, 512
SHORTEST_SIDE, LONGEST_SIDE = 32, 2048
LARGEST_CLIP = 32 * 2**20
"""Bytes, five times what the examples have: a larger clip would hold a worker for seconds."""
MOST_BOXES = 40
"""Boxes per frame that a detector returns; it never has more rows than this per frame."""
MOST_TRACKS = 1024
"""Tracks per frame that are scored: more than `MOST_BOXES` can leave, with those that wait."""
LOOK = 8  # bins of the grey histogram that describes the look of a box

UInt8Array: TypeAlias = NDArray[np.uint8]
BoxArray: TypeAlias = NDArray[np.int16]
FloatArray: TypeAlias = NDArray[np.float64]
Looks: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
Pixel: TypeAlias = tuple[int, ...]
"""Axes of one pixel, behind those of frames: none of grey ones, (3,) of coloured ones."""

GREY: Pixel = ()
COLOURED: Pixel = (3,)  # blue, green and red, as OpenCV has them


@dataclass(frozen=True, slots=True, kw_only=True)
class Footage:
    """Some frames of a clip."""

    frames: UInt8Array  # uint8 (n_frames, height, width), or (..., 3)
    stride: int  # frames of the clip per frame here, `>= 1`
    length: int  # frames of the clip
    scale: float = 1.0  # pixels of the clip per pixel here, `>= 1`


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """The boxes detected in the frames of a clip."""

    boxes: BoxArray  # int16 (n, 5): frame of the clip, x, y, w, h; in the order of frames
    looks: Looks  # (n, k) of each box; here grey histograms, uint8 (n, LOOK), sums about 255
    stride: int  # frames of the clip per frame that was searched, `>= 1`
    length: int  # frames of the clip


def checked_clip(value: Payload, pixel: Pixel = GREY) -> UInt8Array:
    """Return the value as a clip (n_frames, height, width, *pixel); else InvalidInput.

    It is uint8, and within limits.
    """
    limits = ((FEWEST_FRAMES, MOST_FRAMES), *((SHORTEST_SIDE, LONGEST_SIDE),) * 2)

    def fits(its: tuple[int, ...]) -> bool:
        within = (low <= n <= high for n, (low, high) in zip(its, limits, strict=False))
        whole = len(its) >= len(limits) and its[len(limits) :] == pixel
        return whole and all(within) and prod(its) <= LARGEST_CLIP

    rule = (
        f"a uint8 array of {FEWEST_FRAMES} to {MOST_FRAMES} {_named(pixel)} frames, each side of "
        f"{SHORTEST_SIDE} to {LONGEST_SIDE} pixels, at most {LARGEST_CLIP} bytes in all"
    )
    return checked_array("clip", value, np.uint8, fits, rule)


def checked_footage(value: Payload, pixel: Pixel = GREY) -> Footage:
    """Return the value as some frames of a clip; InvalidInput unless a dict of its fields."""
    parts = value if isinstance(value, dict) else {}
    field, scale = "footage.frames", parts.get("scale")
    stride, length = checked_times("footage", parts)
    pixels, rule = parts.get("frames"), f"uint8 frames, {_named(pixel)}"
    frames = checked_array(
        field, pixels, np.uint8, lambda its: len(its) >= 3 and its[3:] == pixel, rule
    )
    expected = -(-length // stride)
    sides = frames.shape[1:3]
    if not (len(frames) == expected and min(sides) >= 4 and frames.nbytes <= LARGEST_CLIP):
        rule = f"must be {expected} frames of 4 x 4 pixels or more, at most {LARGEST_CLIP} bytes"
        raise InvalidInput.of(field, rule, described(frames))
    largest = 2 * LONGEST_SIDE / max(sides)  # twice: heights are rounded
    if not (isinstance(scale, float | int) and 1 <= scale <= largest):
        raise InvalidInput.of("footage.scale", f"must be in [1, {largest:g}]", scale)
    return Footage(frames=frames, stride=stride, length=length, scale=float(scale))


def checked_detections(value: Payload) -> Detections:
    """Return the value as a detector's boxes; InvalidInput unless a dict of its fields."""
    parts = value if isinstance(value, dict) else {}
    stride, length = checked_times("detections", parts)
    boxes = checked_boxes("detections.boxes", parts.get("boxes"), stride, length)
    looks = checked_rows(
        "detections.looks", parts.get("looks"), np.uint8, LOOK, length * MOST_BOXES
    )
    if len(boxes) != len(looks):
        raise InvalidInput.of("detections.looks", f"must have {len(boxes)} rows", len(looks))
    return Detections(boxes=boxes, looks=looks, stride=stride, length=length)


def checked_boxes(field: str, value: Payload, stride: int, length: int) -> BoxArray:  # (n, 5)
    """Return rows of frame, x, y, w, h; InvalidInput unless sizes and frames are possible."""
    boxes = checked_rows(field, value, np.int16, 5, length * MOST_BOXES)
    if np.any(boxes[:, 3:] < 1) or not np.isin(boxes[:, 0], np.arange(0, length, stride)).all():
        rule = "must have sizes >= 1 and times of searched frames"
        raise InvalidInput.of(field, rule, described(boxes))
    return boxes


def checked_tracks(field: str, value: Payload) -> BoxArray:  # (n, 6)
    """Return rows of frame, identity, x, y, w, h; InvalidInput unless int16, sizes >= 1."""
    rows = checked_rows(field, value, np.int16, 6, MOST_FRAMES * MOST_TRACKS)
    if np.any(rows[:, 4:] < 1):
        raise InvalidInput.of(field, "must have sizes >= 1", described(rows))
    return rows


def _named(pixel: Pixel) -> str:
    return "BGR" if pixel == COLOURED else "grey"


def checked_times(field: str, parts: Mapping[str, Payload]) -> tuple[int, int]:
    """Return stride and length, in frames of the clip; InvalidInput unless they fit."""
    stride, length = parts.get("stride"), parts.get("length")
    if isinstance(stride, int) and isinstance(length, int) and 1 <= stride < length <= MOST_FRAMES:
        return stride, length
    rule = f"must be a dict with 1 <= stride < length <= {MOST_FRAMES}"
    raise InvalidInput.of(field, rule, {name: described(part) for name, part in parts.items()})


def checked_rows(
    field: str, value: Payload, dtype: type[Number], columns: int, most: int
) -> NDArray[Number]:
    """Return an array (n, columns), n at most so many; else InvalidInput."""
    rule = f"a {np.dtype(dtype)} array of at most {most} rows of {columns}"
    return checked_array(
        field, value, dtype, lambda its: its[1:] == (columns,) and its[0] <= most, rule
    )


LEAST_VISIBLE = 0.3
"""Share of a sprite that must be visible in a frame, else no tracker has to find it there."""
NOISE_FRAMES = 3
"""Frames' worth of noise drawn for a clip; each frame takes it from another place on. Drawing
noise for each pixel of a clip would take most of the time of making it."""


def draw_clip(rng: np.random.Generator, tiles: Sequence[UInt8Array]) -> Example:
    """Return a clip of 3 to 10 sprites under noise, flickering light, shake and mutual occlusion.

    It is uint8 (FRAMES, HEIGHT, WIDTH); expected are the tracks, int16 (n, 6): frame, identity,
    x, y, w, h of each visible sprite. Background and sprites look like the tiles, pieces
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
        frame[:] = _visible(scene[view], float(light[time]), noise, rng)
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
    """Return noise of one strength, enough for some frames."""
    strength = np.float32(2 + 26 * rng.random() ** 1.5)
    values = strength * rng.standard_normal(NOISE_FRAMES * HEIGHT * WIDTH, dtype=np.float32)
    return np.asarray(np.rint(values), dtype=np.int16)


def _visible(
    view: UInt8Array, light: float, noise: NDArray[np.int16], rng: np.random.Generator
) -> UInt8Array:
    """Return the view, lit, under some of the noise."""
    cv2 = opencv()
    start = int(rng.integers(0, len(noise) - view.size + 1))
    here = noise[start : start + view.size].reshape(view.shape)
    lit = cv2.convertScaleAbs(view, alpha=light)
    return np.asarray(cv2.add(lit, here, dtype=cv2.CV_8U), dtype=np.uint8)


def _painted(
    background: UInt8Array, sprites: Sequence[Sprite], time: int
) -> tuple[UInt8Array, NDArray[np.int8]]:
    """Return the scene, and the sprite of each pixel, or -1. Later sprites hide earlier ones."""
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
    """Return whole boxes, also of what is half hidden, cut at the edges of the frame."""
    visible_pixels = np.bincount(owners.ravel() + 1, minlength=len(sprites) + 1)[1:]
    rows = []
    for number, sprite in enumerate(sprites):
        if visible_pixels[number] < LEAST_VISIBLE * sprite.shape.sum():
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
    shape: NDArray[np.bool_]  # which of its pixels are visible, bool (height, width)
    path: NDArray[np.int64]  # its corner (y, x) in the scene at each time, (FRAMES, 2)


def drawn_sprites(
    rng: np.random.Generator, tiles: Sequence[UInt8Array], behind: float
) -> list[Sprite]:
    """From 3 to 10 sprites, textured as the tiles, before a background of that mean grey."""
    pace = rng.uniform(1.0, 8.0)  # slow or fast all together: that decides what a stride does
    greys = _greys(rng, behind, count=int(rng.integers(3, 11)))
    return [_sprite(rng, tiles, grey, pace) for grey in greys]


def _greys(rng: np.random.Generator, behind: float, *, count: int) -> list[float]:
    """Return mean greys, off the background's; alike in half of the clips: looks differ little."""
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
    """Return the tiles in grey, disjoint, in a fixed order; read-only."""
    return tuple(
        tile
        for photograph in map(_photograph, PHOTOGRAPHS)
        for row in np.array_split(photograph, ROWS, axis=0)
        for tile in np.array_split(row, COLUMNS, axis=1)
    )


def _photograph(name: str) -> UInt8Array:
    """Read it in grey, read-only; located without importing scikit-learn, which takes a second."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("sklearn")
    cv2 = opencv()
    path = Path(spec.origin).parent / "datasets" / "images" / name
    grey = np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), dtype=np.uint8)
    grey.flags.writeable = False
    return grey


def clip_features(clip: UInt8Array) -> NDArray[np.float64]:  # (n_frames, height, width)
    """Return how hard a clip looks, from a few of its pixels, for stratified sampling.

    Shape (5,): noise level (robust standard deviation of the steps between neighbouring pixels of
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
