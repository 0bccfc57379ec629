"""An infrastructure: tiers of machines, and the links between them.

The infrastructure states what a device is like; of the tier where requests start every user has
their own, and no two are alike: `with_device` gives what one query sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from sys import float_info
from typing import Annotated

import numpy as np
import numpy.typing as npt

from circinus.pipelines import checks, ranges
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between two tiers, alike in both directions."""

    between: tuple[str, str]  # the two tiers
    bandwidth_bytes_per_s: float  # `> 0`
    delay_s: Annotated[float, ranges.DELAY_S] = 0.0  # seconds until the first byte arrives
    emulated: bool = False  # whether the time is put on by waiting, not the network's own

    def __post_init__(self) -> None:
        a, b = self.between
        where = f"link {a}-{b}"
        checks.require(a != b, f"{where}.between", "must name two tiers", list(self.between))
        checks.positive(f"{where}.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        ranges.check_fields(f"{where}.", self)


@dataclass(frozen=True, slots=True)
class Route:
    """What a transfer between two tiers costs: `delay_s + bytes * s_per_byte`."""

    delay_s: float
    s_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """Devices of users that are alike; what is None is as the tier and links of devices state."""

    name: str  # unique among the devices of an infrastructure
    machines: Annotated[int, ranges.MACHINES] = 1  # how many users have one
    # how many times as fast as the reference machine
    speed_factor: Annotated[float, ranges.SPEED_FACTOR] | None = None
    bandwidth_bytes_per_s: float | None = None  # of its links, `> 0`
    delay_s: Annotated[float, ranges.DELAY_S] | None = None  # of its links

    def __post_init__(self) -> None:
        checks.name("devices.name", self.name)
        where = f"devices {self.name}."
        checks.positive(f"{where}bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        ranges.check_fields(where, self)

    @property
    def figures(self) -> dict[str, float]:
        """What it states, by field."""
        return _figures(self)


@dataclass(frozen=True, kw_only=True)
class Infrastructure:
    """Tiers, the links between them, and where requests come from.

    Data between tiers without a link of their own takes the route with the fewest links,
    stored and forwarded at each tier: delays and seconds per byte add up.
    """

    name: str  # for people
    tiers: tuple[Tier, ...]  # at least one; by convention from the user's device towards the cloud
    links: tuple[Link, ...] = ()  # every tier must be reachable from every other
    origin: str | None = None  # tier where a request's input arrives; None means the first tier
    # those that users have at `origin`, where they are unlike; a query names its own
    devices: tuple[DeviceKind, ...] = ()
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.name("infrastructure.name", self.name)
        names = [tier.name for tier in self.tiers]
        checks.require(bool(names), "infrastructure.tiers", "must have at least one tier", names)
        checks.unique("infrastructure.tiers", names)
        for link in self.links:
            for end in link.between:
                checks.among("link.between", end, names)
        checks.unique("infrastructure.links", [frozenset(link.between) for link in self.links])
        if self.origin is None:
            object.__setattr__(self, "origin", names[0])
        checks.among("infrastructure.origin", self.origin, names)
        rule = "must be a tier with machines: requests start there"
        start = self.tiers[names.index(self.origin or "")]
        checks.require(not start.remote, "infrastructure.origin", rule, self.origin)
        checks.unique("infrastructure.devices", [each.name for each in self.devices])
        rule = "must be left out: the tier where requests start is shared by all queries"
        checks.require(
            start.dedicated or not self.devices, "infrastructure.devices", rule, start.name
        )
        checks.unique("infrastructure.endpoints", [each.name for each in self.endpoints])
        object.__setattr__(self, "_positions", {name: i for i, name in enumerate(names)})
        _ = self.routes  # every pair must be connected

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of all remote tiers."""
        return tuple(each for tier in self.tiers for each in tier.endpoints)

    def position(self, tier: str) -> int:
        """Return the index of a tier in `tiers`; InvalidInput if there is no such tier."""
        checks.among("tier", tier, self._positions)
        return self._positions[tier]

    def tier(self, name: str) -> Tier:
        """Return the tier of that name; raises as `position` does."""
        return self.tiers[self.position(name)]

    def present(self, names: Iterable[str]) -> dict[str, Tier]:
        """Return the named tiers by name; leave out those that the infrastructure lacks.

        What was stored may name tiers that were renamed or removed since.
        """
        return {
            name: self.tiers[self._positions[name]] for name in names if name in self._positions
        }

    def machine_type(self, tier: str, machine: int) -> str | None:
        """Return the name of the type of a machine; None as `Tier.type_of`, or for no tier."""
        kinds = (each.type_of(machine) for each in self.present([tier]).values())
        return next((kind.name for kind in kinds if kind is not None), None)

    def device_of(self, user: int) -> DeviceProfile | None:
        """Return the device of a user, by number: as many of a kind as there are, then around.

        None: all devices are alike.
        """
        names = [each.name for each in self.devices for _ in range(each.machines)]
        return DeviceProfile(name=names[user % len(names)]) if names else None

    def route(self, a: str, b: str) -> Route:
        """Return what a transfer from tier `a` to tier `b` costs; free within a tier."""
        return self.routes[self.position(a)][self.position(b)]

    @cached_property
    def routes(self) -> tuple[tuple[Route, ...], ...]:
        """The route between every two tiers, by position; InvalidInput if there is none."""
        return tuple(tuple(self._route(a.name, b.name) for b in self.tiers) for a in self.tiers)

    @cached_property
    def route_seconds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Delays and seconds per byte of `routes`, shape (T, T) each."""
        each = np.array([[(r.delay_s, r.s_per_byte) for r in row] for row in self.routes])
        return each[..., 0], each[..., 1]

    def _route(self, a: str, b: str) -> Route:
        ends = [set(pair) for pair in pairwise(self.path(a, b))]
        hops = [next(link for link in self.links if set(link.between) == pair) for pair in ends]
        return Route(
            delay_s=sum(hop.delay_s for hop in hops),
            s_per_byte=sum(1 / hop.bandwidth_bytes_per_s for hop in hops),
        )

    def path(self, a: str, b: str) -> list[str]:
        """Return the tiers from `a` to `b` by the fewest links; InvalidInput without a way."""
        paths, visited = [[a]], {a}
        for path in paths:  # longer ones come behind it
            if path[-1] == b:
                return path
            for link in self.links:
                for here, there in (link.between, link.between[::-1]):
                    if here == path[-1] and there not in visited:
                        visited.add(there)
                        paths.append([*path, there])
        raise InvalidInput.of("infrastructure.links", "must connect every two tiers", f"{a}, {b}")


def divided(infrastructure: Infrastructure, slices: Mapping[str, str]) -> Infrastructure:
    """Return it with further slices of tiers, name -> tier, as tiers behind all others.

    What is in one shares no turn with what is in another, and is beside it: moving data is free.
    """
    missing = {name: of for name, of in slices.items() if not infrastructure.present([name])}
    if not missing:
        return infrastructure
    tiers = (replace(infrastructure.tier(of), name=name) for name, of in missing.items())
    links = (
        Link(between=(of, name), bandwidth_bytes_per_s=float_info.max)
        for name, of in missing.items()
    )
    return replace(
        infrastructure,
        tiers=(*infrastructure.tiers, *tiers),
        links=(*infrastructure.links, *links),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """What a query's device is like; what is None is as the infrastructure states."""

    name: str | None = None  # of a kind in `Infrastructure.devices`, with its figures
    # how many times as fast as the reference machine
    speed_factor: Annotated[float, ranges.SPEED_FACTOR] | None = None
    bandwidth_bytes_per_s: float | None = None  # of its links, `> 0`
    delay_s: Annotated[float, ranges.DELAY_S] | None = None  # of its links

    def __post_init__(self) -> None:
        checks.positive("device.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        ranges.check_fields("device.", self)


def with_device(infrastructure: Infrastructure, device: DeviceProfile | None) -> Infrastructure:
    """Return it as a query with that device sees it; InvalidInput if its tier is not dedicated."""
    if device is None:
        return infrastructure
    origin = infrastructure.tier(infrastructure.origin or "")
    rule = "must be left out: the tier where requests start is shared by all queries"
    checks.require(origin.dedicated, "device", rule, origin.name)
    figures: dict[str, float] = {}
    if device.name is not None:
        kinds = {each.name: each for each in infrastructure.devices}
        checks.among("device.name", device.name, kinds)
        figures = kinds[device.name].figures
    figures |= _figures(device)

    def own(link: Link) -> Link:
        return replace(
            link,
            bandwidth_bytes_per_s=figures.get("bandwidth_bytes_per_s", link.bandwidth_bytes_per_s),
            delay_s=figures.get("delay_s", link.delay_s),
        )

    faster = replace(origin, speed_factor=figures.get("speed_factor", origin.speed_factor))
    return replace(
        infrastructure,
        tiers=tuple(faster if tier is origin else tier for tier in infrastructure.tiers),
        links=tuple(
            own(link) if origin.name in link.between else link for link in infrastructure.links
        ),
    )


_FIGURES = ("speed_factor", "bandwidth_bytes_per_s", "delay_s")


def _figures(device: DeviceKind | DeviceProfile) -> dict[str, float]:
    stated = ((name, getattr(device, name)) for name in _FIGURES)
    return {name: value for name, value in stated if value is not None}
