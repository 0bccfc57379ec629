"""Tables of infrastructures: tiers, endpoints, links, measured speeds."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from circinus.api.schemas.service import InfrastructureView, MachineTypeView, TierView
from circinus.api.text import formats
from circinus.api.text.tables import Cells, machines_of, marks_of, table
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Tier


def tiers_table(infrastructure: InfrastructureView) -> RenderableType:
    """Return the tiers of an infrastructure, with their speed and price, and what is called."""
    title = f"Infrastructure {infrastructure.name}, requests arrive at {infrastructure.origin}"
    rows = (row for tier in infrastructure.tiers for row in _tier_rows(tier))
    made = table(title, "tier", "machines", "speed", "price", "", right=[1, 2, 3], rows=rows)
    called = [
        (f"{tier.name}/{each.name}", formats.call_price(each.price), formats.call_limits(each))
        for tier in infrastructure.tiers
        for each in tier.endpoints
    ]
    if not called:
        return made
    return Group(made, table("Endpoints", "endpoint", "price", "at most", rows=called))


def _tier_rows(tier: TierView) -> Iterator[Cells]:
    if tier.remote:
        yield tier.name, formats.UNKNOWN, formats.UNKNOWN, formats.UNKNOWN, "called"
        return
    price = formats.dollars(tier.price_usd_per_hour)
    marks = ", ".join(filter(None, [marks_of(tier), "" if tier.types else _gpus(tier)]))
    yield tier.name, machines_of(tier), _factor(tier), price, marks
    for each in tier.types:
        price = formats.dollars(each.price_usd_per_hour)
        yield f"{tier.name}/{each.name}", str(each.machines), _factor(each), price, _gpus(each)


def _gpus(of: TierView | MachineTypeView) -> str:
    if of.gpus is None:
        return ""
    parts = f" in {of.gpus.parts} parts" if of.gpus.parts > 1 else ""
    return f"{of.gpus.count} GPUs{parts}, {of.gpus.kind}"


def links_table(infrastructure: InfrastructureView) -> RenderableType:
    """Return the table of emulated links of an infrastructure."""
    rows = (
        (
            ", ".join(link.between),
            f"{link.bandwidth_bytes_per_s * 8 / 1e6:g} Mbit/s",
            formats.seconds(link.delay_s),
            "emulated" if link.emulated else "the network's own",
        )
        for link in infrastructure.links
    )
    return table("Links", "between", "bandwidth", "delay", "", right=[1, 2], rows=rows)


def calibration_table(infrastructure: Infrastructure) -> RenderableType:
    """Return the measured speed factors of every tier, with their spread."""
    columns = ("tier", "class", "factor", "spread", "share", "date")
    pools = (pool for tier in infrastructure.tiers for pool in tier.pools.items())
    rows = (row for name, pool in pools for row in _speeds(name, pool))
    return table("Speed factors", *columns, right=[2], rows=rows)


def _factor(tier: TierView | MachineTypeView | Tier) -> str:
    return f"{tier.speed_factor:.3g}x"


def _speeds(name: str, tier: Tier) -> Iterator[Cells]:
    calibration = tier.calibration
    if calibration is None:
        yield name, "", _factor(tier), "not measured"
        return
    call_ms = 1000 * (tier.call_s or tier.call_delay_s)
    extent = "" if tier.call_s else ", whatever the share"
    figures = f"a call {call_ms:.2g} ms{extent if call_ms else ''}"
    if calibration.within > 1:
        figures = f"{figures}; requests within {calibration.within:.2f}x of predicted"
    yield name, "(tier)", _factor(tier), figures
    for name, speed in calibration.speeds.items():
        spread = f"{speed.low:.3g}-{speed.high:.3g} in {speed.repetitions}"
        yield "", name, f"{speed.factor:.3g}x", spread, f"{calibration.share:g}", calibration.date
