"""The workload: scanned pages of two lines, with their text.

The text is out of Python's own documentation, as `help()` prints it: a line has only characters
that every font draws and every engine may answer, so that the text of a page is exact. Another
release of Python may have other lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import grey, speckle
from circinus.pipelines.catalog.ocr.page import HEIGHT, WIDTH
from circinus.pipelines.io.datasets import Example

if TYPE_CHECKING:
    from PIL import ImageFont

_PROSE = re.compile(r"[A-Za-z(][A-Za-z0-9 ,.;:()-]*")
_FEWEST_WORDS = 5  # fewer are headings and ends of paragraphs


@cache
def all_lines() -> Sequence[str]:
    """Return lines of running text, each once, in the order of the documentation."""
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
SIZES = (14, 20, 28)  # of the letters, pixels
MARGIN = 30
SPACING = 1.5  # from one line to the next, times the size
SHADOW_EDGE = 40.0  # how soft the edge of a shadow is, pixels: scale of a logistic curve


def draw_scan(rng: np.random.Generator, lines: Sequence[str]) -> Example:
    """Return a page, uint8 (140, 680), of two lines: skewed, in shadow, under noise and specks."""
    font = _font(int(rng.integers(len(FONTS))), SIZES[rng.integers(len(SIZES))])
    text = [_fitting(lines[row], font) for row in rng.integers(len(lines), size=2)]
    ink, paper = rng.uniform(0, 70), rng.uniform(190, 250)
    angle_deg = rng.uniform(-2, 2)
    shadow = rng.uniform(0.2, 0.65) if rng.random() < 0.35 else 0.0  # share of the light lost
    shadow_middle = rng.uniform(0, WIDTH)
    noise = 3 + 42 * rng.random() ** 1.5
    specks = rng.uniform(0.002, 0.03) if rng.random() < 0.35 else 0.0
    light = _light(shadow, shadow_middle)
    page = light * (paper - (paper - ink) * _inked("\n".join(text), font, angle_deg))
    page += noise * rng.standard_normal(page.shape, dtype=np.float32)
    speckle(page, specks, rng)
    return Example(input=grey(page), expected="\n".join(text))


@cache
def _font(index: int, size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    # The basic layout is in every build of Pillow; another one might place letters elsewhere.
    return ImageFont.truetype(FONTS[index], size, layout_engine=ImageFont.Layout.BASIC)


def _fitting(line: str, font: ImageFont.FreeTypeFont) -> str:
    """Return as many words from the start of the line as fit on the page."""
    words = line.split()
    while len(words) > 1 and font.getlength(" ".join(words)) > WIDTH - 2 * MARGIN:
        words.pop()
    return " ".join(words)


def _inked(
    text: str, font: ImageFont.FreeTypeFont, angle_deg: float
) -> NDArray[np.float32]:  # (HEIGHT, WIDTH)
    """Return how much of each pixel is ink, in [0, 1]."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (WIDTH, HEIGHT))
    middle = HEIGHT / 2
    for place, line in zip((-0.5, 0.5), text.split("\n"), strict=True):
        height = middle + place * SPACING * font.size
        ImageDraw.Draw(canvas).text((MARGIN, height), line, fill=255, font=font, anchor="lm")
    turned = canvas.rotate(angle_deg, Image.Resampling.BICUBIC)
    return np.asarray(turned, dtype=np.float32) / np.float32(255)


def _light(shadow: float, middle: float) -> NDArray[np.float32]:  # (WIDTH,)
    """Return the share of light that reaches each column: less right of the shadow's middle."""
    columns = np.arange(WIDTH, dtype=np.float32)
    covered = 1 / (1 + np.exp((middle - columns) / SHADOW_EDGE))
    return np.asarray(1 - shadow * covered, dtype=np.float32)
