"""How this computer stands for slower tiers and thinner links: by waiting.

A tier of speed v < 1 takes 1/v times as long, so after an operator that took t seconds
the worker waits t (1/v - 1). A link is waited for by the dispatcher. What is faster than
this computer cannot be emulated and is said to be so.
"""

from __future__ import annotations

from dataclasses import replace
from sys import float_info

from pipelines.infrastructure import Infrastructure, Tier


def emulated_speed(tier: Tier) -> float:
    """Give the speed that waiting puts on, in (0, 1]; 1 puts on nothing."""
    return min(tier.speed_factor, 1.0) if tier.emulated else 1.0


def emulation_of(tier: Tier) -> str:
    """Say in words how the tier's speed comes about on this computer."""
    speed = f"{tier.speed_factor:g}"
    if not tier.emulated and tier.speed_factor == 1:
        return "none"
    if not tier.emulated:
        return f"none: speed {speed} is said to be this machine's own"
    if tier.speed_factor <= 1:
        return f"speed {speed} by waiting"
    return f"none: speed {speed} is faster than this machine, runs at 1"


def emulated_links(infrastructure: Infrastructure) -> Infrastructure:
    """Give the infrastructure whose routes cost only what has to be waited for.

    Same tiers and links, so the same routes; a link that is not emulated costs nothing here,
    as the network itself takes its time.
    """
    links = tuple(
        link if link.emulated else replace(link, delay_s=0.0, bandwidth_bytes_per_s=float_info.max)
        for link in infrastructure.links
    )
    return replace(infrastructure, links=links)
