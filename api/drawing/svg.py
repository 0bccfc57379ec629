"""The elements that drawings are made of: everything in them is escaped here, and only here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b3579a", "#b8860b", "#2aa1d8", "#7f7f7f")
"""Distinguishable to the colour-blind as well (after Okabe and Ito)."""
ACCENT, GREY = "#2f6fe4", "#8a94a3"
"""Visible on white and on black; a page that knows its background overrides them by class."""
_LETTER = 0.54  # of the size of letters: how wide one is


def element(name: str, *parts: str, **attributes: object) -> str:
    """Return an element around its parts, which are SVG. None is no attribute; `_` becomes `-`."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{''.join(parts)}</{name}>" if parts else f"<{name}{pairs}/>"


def words(text: str, x: float, y: float, **attributes: object) -> str:
    """Return words at a point, in the colour of those around the drawing."""
    merged = {"fill": "currentColor", "font_size": 12, **attributes}
    return element("text", escape(text), x=x, y=y, **merged)


def title(text: str) -> str:
    """Return the tooltip of the element around it, which screen readers read aloud."""
    return element("title", escape(text))


def drawing(
    name: str,
    description: str,
    size: tuple[float, float],
    parts: Sequence[str],
    *,
    kind: str = "wide",
) -> str:
    """Return a whole drawing, with its `description` for screen readers.

    One of the kind `plot` may be as narrow as a phone, with larger letters.
    """
    width, height = size
    return element(
        "svg",
        title(name),
        element("desc", escape(description)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_=f"drawing {kind}",
        # A reader does not look for links within an image.
        role="group" if any("href=" in part for part in parts) else "img",
        aria_label=f"{name}. {description}",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        font_family="system-ui, sans-serif",
    )


def fitted(text: str, width: float, size: float = 12) -> str:
    """Return what fits of a text."""
    most = int(width / (size * _LETTER))
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most > 1 else ""


def wrapped(text: str, width: float, size: float = 12) -> list[str]:
    """Return a text in lines that fit."""
    lines, most = [""], int(width / (size * _LETTER))
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{word}"
    return [fitted(line, width, size) for line in lines]


def of_tier(number: int) -> dict[str, str]:
    """Return the class and the colour of the tier of that number, from 0."""
    at = number % len(COLOURS)
    colours = {"fill": COLOURS[at], "stroke": COLOURS[at]}
    return {"class_": f"tier tier-{at + 1}", **colours, "fill_opacity": "0.3"}


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
