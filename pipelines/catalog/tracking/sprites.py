"""What moves in a clip: textured ellipses, each on a way of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.catalog.tracking.handed_over import FRAMES, HEIGHT, MARGIN, WIDTH, UInt8Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprite:
    """A textured ellipse and its way.

    Attributes:
        texture: uint8 (height, width).
        shape: Which of its pixels are seen, bool (height, width).
        path: Its top left corner (y, x) in the scene at each time, int64 (FRAMES, 2).
    """

    texture: UInt8Array
    shape: NDArray[np.bool_]
    path: NDArray[np.int64]


def drawn_sprites(
    rng: np.random.Generator, tiles: Sequence[UInt8Array], behind: float
) -> list[Sprite]:
    """From 3 to 10 sprites, textured as the tiles, before a background of that mean grey."""
    pace = rng.uniform(1.0, 8.0)  # slow or fast all together: that decides what a stride does
    greys = _greys(rng, behind, count=int(rng.integers(3, 11)))
    return [_sprite(rng, tiles, grey, pace) for grey in greys]


def _greys(rng: np.random.Generator, behind: float, *, count: int) -> list[float]:
    """Mean greys of the sprites, off that of the background.

    In half of the clips they are alike: there a look tells little.
    """
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
