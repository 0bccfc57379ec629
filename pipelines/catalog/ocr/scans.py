"""The workload: scanned pages of two lines, with what they say.

The text is out of Python's own documentation, as `help()` prints it: a line has only characters
that every font draws and every engine may answer, so that what a page says is exact. Another
release of Python may have other lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import speckle
from circinus.pipelines.catalog.ocr.page import HEIGHT, WIDTH
from circinus.pipelines.dataset import Example

if TYPE_CHECKING:
    from PIL import ImageFont

_PROSE = re.compile(r"[A-Za-z(][A-Za-z0-9 ,.;:()-]*")
_FEWEST_WORDS = 5
"""Fewer are headings and ends of paragraphs."""


@cache
def all_lines() -> Sequence[str]:
    """Lines of running text, each once, in the order of the documentation."""
    from pydoc_data.topics import topics  # half a megabyte: only where pages are drawn

    lines = (line.strip() for topic in topics.values() for line in topic.splitlines())
    return tuple(dict.fromkeys(line for line in lines if _is_prose(line)))


def _is_prose(line: str) -> bool:
    one_spaced = "  " not in line
    return one_spaced and len(line.split()) >= _FEWEST_WORDS and bool(_PROSE.fullmatch(line))


FONTS = tuple(
    Path("/usr/share/fonts/truetype", name)
    for name in (
        "liberation/LiberationSerif-Regular.ttf",
        "liberation/LiberationSans-Regular.ttf",
        "liberation/LiberationMono-Regular.ttf",
        "dejavu/DejaVuSans.ttf",
        "dejavu/DejaVuSerif.ttf",
    )
)
SIZES = (14, 20, 28)
"""Of the letters, pixels."""
MARGIN = 30
SPACING = 1.5
"""From one line to the next, times the size."""
SHADOW_EDGE = 40.0
"""How soft the edge of a shadow is, pixels: scale of a logistic curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flaws:
    """What is wrong with one scan: grey levels of 255, degrees, pixels and shares.

    `shadow` is the share of the light that is lost right of `shadow_middle`, `specks` that of the
    pixels that are black or white by chance.
    """

    ink: float
    paper: float
    angle: float
    shadow: float
    shadow_middle: float
    noise: float
    specks: float


def draw_scan(rng: np.random.Generator, lines: Sequence[str]) -> Example:
    """A page, uint8 (140, 680), of two of the lines: skewed, in shadow, under noise and specks."""
    font = _font(int(rng.integers(len(FONTS))), SIZES[rng.integers(len(SIZES))])
    text = [_fitting(lines[row], font) for row in rng.integers(len(lines), size=2)]
    flaws = _draw_flaws(rng)
    ink = _ink("\n".join(text), font, flaws.angle)
    page = _light(flaws) * (flaws.paper - (flaws.paper - flaws.ink) * ink)
    page += flaws.noise * rng.standard_normal(page.shape, dtype=np.float32)
    speckle(page, flaws.specks, rng)
    return Example(input=np.clip(np.rint(page), 0, 255).astype(np.uint8), expected="\n".join(text))


def _draw_flaws(rng: np.random.Generator) -> _Flaws:
    return _Flaws(
        ink=rng.uniform(0, 70),
        paper=rng.uniform(190, 250),
        angle=rng.uniform(-2, 2),
        shadow=rng.uniform(0.2, 0.65) if rng.random() < 0.35 else 0.0,
        shadow_middle=rng.uniform(0, WIDTH),
        noise=3 + 42 * rng.random() ** 1.5,
        specks=rng.uniform(0.002, 0.03) if rng.random() < 0.35 else 0.0,
    )


@cache
def _font(index: int, size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    # The basic layout is in every build of Pillow; another one might place letters elsewhere.
    return ImageFont.truetype(FONTS[index], size, layout_engine=ImageFont.Layout.BASIC)


def _fitting(line: str, font: ImageFont.FreeTypeFont) -> str:
    """As many words from the start of the line as fit on the page."""
    words = line.split()
    while len(words) > 1 and font.getlength(" ".join(words)) > WIDTH - 2 * MARGIN:
        words.pop()
    return " ".join(words)


def _ink(
    text: str, font: ImageFont.FreeTypeFont, angle: float
) -> NDArray[np.float32]:  # (HEIGHT, WIDTH)
    """How much of each pixel is ink, in [0, 1]."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (WIDTH, HEIGHT))
    middle = HEIGHT / 2
    for place, line in zip((-0.5, 0.5), text.split("\n"), strict=True):
        height = middle + place * SPACING * font.size
        ImageDraw.Draw(canvas).text((MARGIN, height), line, fill=255, font=font, anchor="lm")
    turned = canvas.rotate(angle, Image.Resampling.BICUBIC)
    return np.asarray(turned, dtype=np.float32) / np.float32(255)


def _light(flaws: _Flaws) -> NDArray[np.float32]:  # (WIDTH,)
    """Share of the light that reaches each column: less to the right of the shadow's edge."""
    columns = np.arange(WIDTH, dtype=np.float32)
    covered = 1 / (1 + np.exp((flaws.shadow_middle - columns) / SHADOW_EDGE))
    return np.asarray(1 - flaws.shadow * covered, dtype=np.float32)
