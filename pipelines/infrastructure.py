"""Tiers of machines and the links between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from pipelines import checks
from pipelines.calibration import Calibration
from pipelines.errors import InvalidInput

SHARE_STEP = 0.05
"""Shares of a machine come in these steps, 0.05 to 1 (science page, section 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A pool of like machines.

    Attributes:
        name: Unique within the infrastructure.
        machines: How many there are, `>= 0`; for a dedicated tier, how many each query has.
        price_usd_per_hour: Of one whole machine, `>= 0`.
        speed_factor: How many times as fast as the reference machine, `> 0`: operator seconds
            are divided by it.
        dedicated: Whether every query has machines of its own here (the user's device) instead
            of sharing them with all others.
        emulated: Whether the speed is put on by waiting instead of being the machine's own.
        call_s: Seconds that calling an instance here costs it besides its operators, on the
            reference machine with all of it, `>= 0`: receiving, decoding, answering.
        call_s_per_byte: The same for each byte that a call hands over: copying, `>= 0`.
        calibration: Speed factors measured per class of operators; None: not measured.
    """

    name: str
    machines: int = 1
    price_usd_per_hour: float = 0.0
    speed_factor: float = 1.0
    dedicated: bool = False
    emulated: bool = False
    call_s: float = 0.0
    call_s_per_byte: float = 0.0
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        checks.name("tier.name", self.name)
        where = f"tier {self.name}"
        checks.require(self.machines >= 0, f"{where}.machines", "must be >= 0", self.machines)
        checks.non_negative(f"{where}.price_usd_per_hour", self.price_usd_per_hour)
        checks.positive(f"{where}.speed_factor", self.speed_factor)
        checks.non_negative(f"{where}.call_s", self.call_s)
        checks.non_negative(f"{where}.call_s_per_byte", self.call_s_per_byte)

    def speed_of(self, operator_class: str) -> float:
        """Give the speed factor for a class of operators: measured, or the tier's own."""
        known = None
        if self.calibration is not None:
            known = self.calibration.speeds.get(operator_class)
        if self.calibration is None or known is None:
            return self.speed_factor
        return known.factor * self.speed_factor / self.calibration.tier_factor

    def calibrated(self, found: Calibration) -> Tier:
        """Give the tier as measured; classes that were measured before only keep their speeds."""
        before = {} if self.calibration is None else self.calibration.at(self.speed_factor).speeds
        kept = replace(found, speeds={**before, **found.speeds})
        return replace(self, speed_factor=found.tier_factor, calibration=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between two tiers, alike in both directions.

    Attributes:
        between: The two tiers.
        bandwidth_bytes_per_s: `> 0`.
        delay_s: Seconds until the first byte arrives, `>= 0`.
        emulated: Whether the time is put on by waiting instead of being the network's own.
    """

    between: tuple[str, str]
    bandwidth_bytes_per_s: float
    delay_s: float = 0.0
    emulated: bool = False

    def __post_init__(self) -> None:
        a, b = self.between
        where = f"link {a}-{b}"
        checks.require(a != b, f"{where}.between", "must name two tiers", list(self.between))
        checks.positive(f"{where}.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        checks.non_negative(f"{where}.delay_s", self.delay_s)

    def transfer_s(self, size_bytes: float) -> float:
        """Give the seconds that `size_bytes` take."""
        return self.delay_s + size_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True)
class Route:
    """What a transfer between two tiers costs: `delay_s + bytes * s_per_byte`."""

    delay_s: float
    s_per_byte: float


@dataclass(frozen=True, kw_only=True)
class Infrastructure:
    """Tiers, the links between them, and where requests come from.

    Data between tiers without a link of their own takes the route with the fewest links,
    stored and forwarded at each tier: delays and seconds per byte add up.

    Attributes:
        name: For people.
        tiers: At least one; by convention from the user's device towards the cloud.
        links: Every tier must be reachable from every other.
        origin: Tier where a request's input is when it arrives; None means the first tier.
    """

    name: str
    tiers: tuple[Tier, ...]
    links: tuple[Link, ...] = ()
    origin: str | None = None
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.name("infrastructure.name", self.name)
        names = [tier.name for tier in self.tiers]
        checks.require(
            len(names) > 0, "infrastructure.tiers", "must have at least one tier", names
        )
        checks.unique("infrastructure.tiers", names)
        for link in self.links:
            for end in link.between:
                checks.require(
                    end in names, "link.between", f"must be among {', '.join(names)}", end
                )
        checks.unique("infrastructure.links", [frozenset(link.between) for link in self.links])
        if self.origin is None:
            object.__setattr__(self, "origin", names[0])
        rule = f"must be among {', '.join(names)}"
        checks.require(self.origin in names, "infrastructure.origin", rule, self.origin)
        object.__setattr__(self, "_positions", {name: i for i, name in enumerate(names)})
        _ = self.routes  # every pair must be connected

    def position(self, tier: str) -> int:
        """Give the index of a tier in `tiers`.

        Raises:
            InvalidInput: If there is no such tier.
        """
        if tier not in self._positions:
            raise InvalidInput.of("tier", f"must be among {', '.join(self._positions)}", tier)
        return self._positions[tier]

    def tier(self, name: str) -> Tier:
        """Give the tier of that name.

        Raises:
            InvalidInput: If there is none.
        """
        return self.tiers[self.position(name)]

    def route(self, a: str, b: str) -> Route:
        """Give what a transfer from tier `a` to tier `b` costs; free within a tier."""
        return self.routes[self.position(a)][self.position(b)]

    @cached_property
    def routes(self) -> tuple[tuple[Route, ...], ...]:
        """The route between every two tiers, by position.

        Raises:
            InvalidInput: If two tiers are not connected.
        """
        return tuple(tuple(self._route(a.name, b.name) for b in self.tiers) for a in self.tiers)

    def _route(self, a: str, b: str) -> Route:
        hops = [self._link(*pair) for pair in pairwise(self.path(a, b))]
        return Route(
            delay_s=sum(hop.delay_s for hop in hops),
            s_per_byte=sum(1 / hop.bandwidth_bytes_per_s for hop in hops),
        )

    def _link(self, a: str, b: str) -> Link:
        return next(link for link in self.links if set(link.between) == {a, b})

    def path(self, a: str, b: str) -> list[str]:
        """Give the tiers on the way from `a` to `b` with the fewest links, both included.

        Raises:
            InvalidInput: If there is no way.
        """
        paths = [[a]]
        seen = {a}
        while paths:
            path = paths.pop(0)
            if path[-1] == b:
                return path
            for link in self.links:
                for here, there in (link.between, link.between[::-1]):
                    if here == path[-1] and there not in seen:
                        seen.add(there)
                        paths.append([*path, there])
        raise InvalidInput.of("infrastructure.links", "must connect every two tiers", f"{a}, {b}")
