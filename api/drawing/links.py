"""Tiers one below the other, as data moves from the device to the cloud, and their links."""

from __future__ import annotations

from collections.abc import Iterator

from circinus.api.drawing.svg import drawing, element, fitted, of_tier, title, words
from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.service import InfrastructureView, LinkView, TierView
from circinus.api.text import formats

_WIDE, _HIGH, _STEP = 236.0, 46.0, 92.0
_BEYOND = 22.0  # pixels between links that pass tiers by
_WIDTH = 400.0


def links_svg(infrastructure: InfrastructureView) -> str:
    """Return tiers as boxes and links as lines, dashed where they are emulated."""
    rows = {tier.name: row for row, tier in enumerate(infrastructure.tiers)}
    beyond = 0
    parts: list[str] = []
    for each in infrastructure.links:
        one, other = sorted((rows[each.between[0]], rows[each.between[1]]))
        if other - one == 1:
            parts.append(_near(each, one))
        else:
            parts.append(_far(each, one, other, beyond))
            beyond += 1
    for row, tier in enumerate(infrastructure.tiers):
        here = tier.name == infrastructure.origin
        parts += _tier(row, tier.name, f"{_content(tier)}{'; the origin' if here else ''}")
    description = "; ".join(map(link_words, infrastructure.links)) or "no links"
    height = (len(rows) - 1) * _STEP + _HIGH + 2
    return drawing(
        f"Tiers and links of {infrastructure.name}", description, (_WIDTH, height), parts
    )


def link_words(link: LinkView) -> str:
    """Return a link in words."""
    emulated = ", emulated" if link.emulated else ""
    return f"{' - '.join(link.between)}: {figures(link)}{emulated}"


def figures(link: LinkView) -> str:
    """Return bandwidth and delay of a link."""
    rate = f"{link.bandwidth_bytes_per_s / BYTES_PER_MBIT:.4g} Mbit/s"
    return f"{rate}, {formats.seconds(link.delay_s)}"


def _content(tier: TierView) -> str:
    """Return what a tier is made of, in words."""
    if tier.remote:
        return f"called: {', '.join(each.name for each in tier.endpoints)}"
    if tier.dedicated:
        return "one for each query"
    price = f"{'up to ' if tier.types else ''}{formats.dollars(tier.price_usd_per_hour)}"
    return f"{tier.machines} x {price}"


def _tier(row: int, name: str, description: str) -> Iterator[str]:
    y, box = row * _STEP + 1, {"rx": 5, "width": _WIDE, "height": _HIGH}
    yield element("rect", x=1, y=y, **box, **of_tier(row))
    yield words(fitted(name, _WIDE - 20, 14), 12, y + 19, font_size=14, font_weight=600)
    yield words(fitted(description, _WIDE - 20, 12), 12, y + 37, font_size=12)


def _line(link: LinkView, path: str) -> str:
    look = {"stroke": "currentColor", "stroke_width": 2, "fill": "none"}
    dashes = "5 4" if link.emulated else None
    return element("path", d=path, class_="link", stroke_dasharray=dashes, **look)


def _near(link: LinkView, row: int) -> str:
    y = row * _STEP + 1 + _HIGH
    line = _line(link, f"M40 {y}v{_STEP - _HIGH}")
    label = words(figures(link), 54, y + (_STEP - _HIGH) / 2 + 4)
    return element("g", title(link_words(link)), line, label)


def _far(link: LinkView, one: int, other: int, beyond: int) -> str:
    """Return a link that passes tiers by, to their right; nearest is the first of them."""
    x, top, bottom = (
        _WIDE + _BEYOND * (beyond + 1),
        *(r * _STEP + _HIGH / 2 for r in (one, other)),
    )
    line = _line(link, f"M{_WIDE + 1} {top}H{x}V{bottom}H{_WIDE + 1}")
    text = fitted(figures(link), _WIDTH - x - 6, 12)
    label = words(text, x + 6, (top + bottom) / 2 + 16 * beyond)
    return element("g", title(link_words(link)), line, label)
