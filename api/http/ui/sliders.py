"""The sliders of a what-if: what may be changed of a query and the machines, and how far.

Each is a factor of what there is, or a value. At its neutral place it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.explanation import ObjectiveChange, WhatIfBody
from circinus.api.schemas.violations import checked
from circinus.api.text import formats
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.slo import ANY_LATENCY_S, Slo
from circinus.pipelines.model.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """One figure that may be changed."""

    name: str  # of the field: `accuracy`, `price.TIER` and so on
    label: str
    words: str  # what it is at, with `%` for its value
    low: float = 0.1
    high: float = 3.0
    step: float = 0.05
    neutral: float = 1.0  # where it changes nothing
    value: float | None = None  # where it is; None: where it changes nothing
    times: bool = True  # whether it is a factor

    @property
    def at(self) -> float:
        """Where it is."""
        return self.neutral if self.value is None else self.value

    @property
    def text(self) -> str:
        """Its value in words."""
        return self.words.replace("%", f"{self.at:g}")

    @property
    def change(self) -> str:
        """Return the change as bodies have it; empty: none."""
        if self.at == self.neutral:
            return ""
        return f"{self.at:g}{'x' if self.times else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sliders of one thing."""

    name: str
    sliders: Sequence[Slider]


def groups(slo: Slo, infrastructure: Infrastructure) -> Sequence[Group]:
    """Return the sliders of a query: of its objectives, of each tier, of the links."""
    links = [
        _times(
            f"bandwidth.{'-'.join(link.between)}",
            " to ".join(link.between),
            f"{link.bandwidth_bytes_per_s / BYTES_PER_MBIT:g} Mbit/s",
        )
        for link in infrastructure.links
    ]
    tiers = [
        Group(name=f"Tier {name}", sliders=[*_of_tier(name, pool)])
        for tier in infrastructure.tiers
        for name, pool in tier.pools.items()
    ]
    objectives = Group(name="Objectives", sliders=[*_of_slo(slo)])
    return [objectives, *tiers, *([Group(name="Links", sliders=links)] if links else [])]


def _of_slo(slo: Slo) -> Iterator[Slider]:
    yield Slider(
        name="accuracy",
        label="Least accuracy",
        words="%",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=slo.accuracy,
        times=False,
    )
    if slo.latency_s < ANY_LATENCY_S:
        yield _times("latency", "Most latency", formats.seconds(slo.latency_s))
    if slo.cost_usd_per_hour is not None:
        yield _times("cost", "Most cost", formats.dollars(slo.cost_usd_per_hour))
    if slo.cost_usd_per_1000_requests is not None:
        now = formats.per_1000(slo.cost_usd_per_1000_requests)
        yield _times("cost_per_1000", "Most cost of requests", now)


def _of_tier(name: str, pool: Tier) -> Iterator[Slider]:
    if pool.price_usd_per_hour > 0:
        yield _times(f"price.{name}", "Price", formats.dollars(pool.price_usd_per_hour))
    yield _times(f"speed.{name}", "Speed", f"{pool.speed_factor:.3g}")
    yield Slider(
        name=f"machines.{name}",
        label="Machines",
        words="%",
        low=0.0,
        high=float(max(2 * pool.machines, 8)),
        step=1.0,
        neutral=float(pool.machines),
        times=False,
    )


def _times(name: str, label: str, now: str) -> Slider:
    return Slider(name=name, label=label, words=f"% x {now}")


def moved(them: Sequence[Group], form: Mapping[str, str]) -> Sequence[Group]:
    """Return the sliders at a form's positions; InvalidInput if one is at no number."""

    def at(slider: Slider) -> Slider:
        text = form.get(slider.name)
        return replace(slider, value=_number(slider.name, text)) if text else slider

    return [replace(group, sliders=[*map(at, group.sliders)]) for group in them]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput.of(name, "must be a number", text) from error


def what_if_of(them: Sequence[Group]) -> WhatIfBody:
    """Return the sliders' objectives; InvalidInput if one has an impossible value."""
    changes: dict[str, object] = {}
    for slider in (each for group in them for each in group.sliders if each.change):
        kind, _, name = slider.name.partition(".")
        if not name:
            changes[kind] = slider.change
            continue
        of_kind = changes.setdefault(kind, {})
        if isinstance(of_kind, dict):
            of_kind[name] = slider.change
    return checked(WhatIfBody, changes)


def objectives_of(them: Sequence[Group]) -> ObjectiveChange:
    """Return the part of it that concerns the query alone; errors as `what_if_of`."""
    own = set(ObjectiveChange.model_fields)
    return ObjectiveChange(**what_if_of(them).model_dump(include=own))
