"""Tiers of machines: how many, at what price, how fast, and which endpoints are called there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Annotated, Any

from circinus.pipelines import checks, ranges
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.shares import Gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSpeed:
    """The speed factor of a tier for one class of operators, by `circinus calibrate`."""

    # how many times as fast as profiled on the reference machine
    factor: Annotated[float, ranges.SPEED_FACTOR]
    low: Annotated[float, ranges.SPEED_FACTOR]  # the least of parts of the repetitions
    high: Annotated[float, ranges.SPEED_FACTOR]  # the largest of those
    repetitions: int  # how often it was measured, `>= 1`

    def __post_init__(self) -> None:
        ranges.check_fields("speed.", self)
        ordered = self.low <= self.factor <= self.high
        spread = (self.low, self.factor, self.high)
        checks.require(ordered, "speed", "must have low <= factor <= high", spread)
        checks.at_least("speed.repetitions", self.repetitions, 1)

    def times(self, ratio: float) -> ClassSpeed:
        """Return the speed of the same operators on a machine `ratio` times as fast."""
        return replace(
            self, factor=self.factor * ratio, low=self.low * ratio, high=self.high * ratio
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Speed factors of a tier, measured on its workers."""

    date: str  # when, as `YYYY-MM-DD`
    share: float  # of a machine that the workers had, in (0, 1]
    # the tier's own then: if doubled later, so is that of every class
    tier_factor: Annotated[float, ranges.SPEED_FACTOR]
    speeds: Mapping[str, ClassSpeed]  # class of operators -> its speed factor
    # what a request takes in settings that were not measured is, in 95 of 100 of them, at most so
    # many times as long, or as short, as predicted. 1: not measured
    within: Annotated[float, ranges.TIMES] = 1.0

    def __post_init__(self) -> None:
        try:
            date.fromisoformat(self.date)
        except ValueError as error:
            raise InvalidInput.of("calibration.date", "must be YYYY-MM-DD", self.date) from error
        checks.share("calibration.share", self.share)
        ranges.check_fields("calibration.", self)

    def speed_of(self, operator_class: str, tier_factor: float) -> float:
        """Return the speed for a class of a tier with this factor, which it has without one."""
        if operator_class not in self.speeds:
            return tier_factor
        return self.speeds[operator_class].factor * tier_factor / self.tier_factor

    def at(self, tier_factor: float) -> Calibration:
        """Return what would have been measured of a tier with another factor of its own."""
        ratio = tier_factor / self.tier_factor
        speeds = {name: speed.times(ratio) for name, speed in self.speeds.items()}
        return replace(self, tier_factor=tier_factor, speeds=speeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """Machines of a shared tier that are alike, where it holds unlike ones."""

    name: str  # unique within the tier
    machines: Annotated[int, ranges.MACHINES] = 1  # how many there are
    price_usd_per_hour: Annotated[float, ranges.PRICE_USD_PER_HOUR] = 0.0  # of one whole machine
    # times as fast as the reference machine: divides seconds
    speed_factor: Annotated[float, ranges.SPEED_FACTOR] = 1.0
    calibration: Calibration | None = None  # speed factors per operator class; None: not measured
    gpus: Gpus | None = None  # of one machine; None: workers use none
    # of one machine; None: as of every machine elsewhere
    cores: Annotated[float, ranges.CORES] | None = None
    memory_gib: Annotated[float, ranges.MEMORY_GIB] | None = None  # likewise

    def __post_init__(self) -> None:
        checks.name("type.name", self.name)
        ranges.check_fields(f"type {self.name}.", self)

    def speed_of(self, operator_class: str) -> float:
        """Return the speed factor for a class of operators: measured, or the type's own."""
        if self.calibration is None:
            return self.speed_factor
        return self.calibration.speed_of(operator_class, self.speed_factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A pool of machines: like ones, or of several types.

    With types its own figures follow from theirs, so that what a plan promises holds on all of
    them: as slow as the slowest, as dear as the dearest. Types without machines count, too: they
    may get some while the plan serves.
    """

    name: str  # unique within the infrastructure
    # how many there are; for a dedicated tier, how many each query has
    machines: Annotated[int, ranges.MACHINES] = 1
    price_usd_per_hour: Annotated[float, ranges.PRICE_USD_PER_HOUR] = 0.0  # of one whole machine
    # times as fast as the reference machine: divides seconds
    speed_factor: Annotated[float, ranges.SPEED_FACTOR] = 1.0
    dedicated: bool = False  # whether every query has machines of its own (the user's device)
    emulated: bool = False  # whether the speed is put on by waiting, not the machine's own
    # seconds that calling an instance here costs it besides its operators, on the reference
    # machine with all of it: receiving, decoding, answering
    call_s: Annotated[float, ranges.CALL_S] = 0.0
    # the same for each byte that a call hands over: copying
    call_s_per_byte: Annotated[float, ranges.CALL_S_PER_BYTE] = 0.0
    # seconds that a call waits besides on its way to an instance and back, whatever the share of
    # that: the network to it, and all that a share enforced by waiting does not stretch
    call_delay_s: Annotated[float, ranges.DELAY_S] = 0.0
    calibration: Calibration | None = None  # speed factors per operator class; None: not measured
    # what a request takes here while nothing was calibrated is at most so many times as long, or
    # as short, as predicted
    within: Annotated[float, ranges.TIMES] = 1.0
    gpus: Gpus | None = None  # of one machine; None: workers use none, or its types are unlike
    # of one machine; None: as of every machine elsewhere
    cores: Annotated[float, ranges.CORES] | None = None
    memory_gib: Annotated[float, ranges.MEMORY_GIB] | None = None  # likewise
    # of a shared tier, in the order of its machines' numbers, which is made the cheapest first;
    # none: its machines are alike
    types: tuple[MachineType, ...] = ()
    # what is called there. With endpoints the tier is remote: it has no machines, and operators on
    # it are those that call them
    endpoints: tuple[Endpoint, ...] = ()

    def __post_init__(self) -> None:
        checks.name("tier.name", self.name)
        where = f"tier {self.name}"
        if self.endpoints:
            self._have_no_machines(where)
        if self.types:
            self._follow_types(where)
        ranges.check_fields(f"{where}.", self)

    @property
    def remote(self) -> bool:
        """Whether it has no machines of ours, but endpoints that are called."""
        return bool(self.endpoints)

    def endpoint(self, name: str) -> Endpoint:
        """Return the endpoint of that name; InvalidInput if it has none such."""
        by_name = {each.name: each for each in self.endpoints}
        checks.among(f"tier {self.name}.endpoints", name, by_name)
        return by_name[name]

    def _have_no_machines(self, where: str) -> None:
        checks.unique(f"{where}.endpoints", [each.name for each in self.endpoints])
        rule = "must be left out: its endpoints are called, no machine of it is rented"
        for each in fields(self):
            if each.name not in ("name", "endpoints", "machines"):
                value = getattr(self, each.name)
                checks.require(value == each.default, f"{where}.{each.name}", rule, value)
        left_out = self.machines in (0, _MACHINES)
        checks.require(left_out, f"{where}.machines", rule, self.machines)
        object.__setattr__(self, "machines", 0)

    def _follow_types(self, where: str) -> None:
        names = [each.name for each in self.types]
        rule = "must be left out: every query has machines of its own there"
        checks.require(not self.dedicated, f"{where}.types", rule, names)
        checks.unique(f"{where}.types", names)
        cheapest_first = sorted(self.types, key=lambda each: each.price_usd_per_hour)
        derived = {
            "machines": sum(each.machines for each in self.types),
            "price_usd_per_hour": cheapest_first[-1].price_usd_per_hour,
            "speed_factor": min(each.speed_factor for each in self.types),
            "calibration": None,
            "gpus": self.types[0].gpus if len({each.gpus for each in self.types}) == 1 else None,
            "cores": _least([each.cores for each in self.types]),
            "memory_gib": _least([each.memory_gib for each in self.types]),
        }
        for name, value in derived.items():
            stated = getattr(self, name)
            fits = stated in (_LEFT_OUT[name], value)
            rule = "must be left out: its types say it"
            checks.require(fits, f"{where}.{name}", rule, stated)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "types", tuple(cheapest_first))
        rule = "must have GPUs that give a share in common: plans name the tier alone"
        unlike = {each.name: each.gpus.in_words() for each in self.types if each.gpus}
        checks.require(self.share_steps != (), f"{where}.types", rule, unlike)

    @property
    def share_steps(self) -> tuple[int, ...] | None:
        """The shares that a worker may have here, in steps of `SHARE_STEP`, ascending; None: any.

        With types, those that all of them give.
        """
        each_steps = [each.gpus.steps for each in (self.types or (self,)) if each.gpus is not None]
        return (
            tuple(sorted(set(each_steps[0]).intersection(*each_steps[1:]))) if each_steps else None
        )

    def speed_of(self, operator_class: str) -> float:
        """Return the speed factor for a class of operators: measured, or the tier's own.

        With types, that of the type which is slowest at the class.
        """
        if self.types:
            return min(each.speed_of(operator_class) for each in self.types)
        if self.calibration is None:
            return self.speed_factor
        return self.calibration.speed_of(operator_class, self.speed_factor)

    @property
    def off_by(self) -> float:
        """By what factor requests here may be off at most: as calibrated, or the tier's own."""
        calibrations = [each.calibration for each in self.types or (self,)]
        return max(self.within if each is None else each.within for each in calibrations)

    def calibrated(self, measured: Calibration) -> Tier:
        """Return the tier as measured; classes that were measured before only keep their speeds.

        Of several pipelines the one that is predicted worst bounds how far off predictions may be.
        """
        if self.calibration is not None:
            before, within = self.calibration.at(self.speed_factor).speeds, self.calibration.within
            others = bool(before.keys() - measured.speeds.keys())
            measured = replace(
                measured,
                speeds={**before, **measured.speeds},
                within=max(measured.within, within) if others else measured.within,
            )
        return replace(self, speed_factor=measured.tier_factor, calibration=measured)

    def type_of(self, machine: int) -> MachineType | None:
        """Return the type of a machine; None: there is no such machine, or there are no types."""
        for each in self.types:
            if 0 <= machine < each.machines:
                return each
            machine -= each.machines
        return None

    def price_of(self, machine: int) -> float:
        """Return dollars an hour of one machine, at the price of its type where it has one."""
        kind = self.type_of(machine)
        return self.price_usd_per_hour if kind is None else kind.price_usd_per_hour

    def as_type(self, name: str) -> Tier:
        """Return the tier with the machines of one type only; InvalidInput if it has none.

        It has no types then.
        """
        types = {each.name: each for each in self.types}
        checks.among(f"tier {self.name}.types", name, types)
        own = {of: getattr(types[name], of) for of in _LEFT_OUT}
        return replace(self, types=(), **own)

    def typed(self, machine_type: str | None) -> Tier:
        """Return it as the machines of a type make it, see `as_type`; None: as it is itself."""
        return self if machine_type is None else self.as_type(machine_type)

    @property
    def pools(self) -> dict[str, Tier]:
        """The tiers of like machines that it is made of: `TIER/TYPE`, itself; none if remote."""
        if self.remote:
            return {}
        if not self.types:
            return {self.name: self}
        return {f"{self.name}/{each.name}": self.as_type(each.name) for each in self.types}

    def changed(self, change: Callable[[str, Tier], Tier]) -> Tier:
        """Return it with other machines, price, speed, shape ... of its pools, by name."""
        pools = [change(name, pool) for name, pool in self.pools.items()]
        if not pools:
            return self
        if not self.types:
            return pools[0]
        types = tuple(
            replace(each, **{of: getattr(pool, of) for of in _LEFT_OUT})
            for each, pool in zip(self.types, pools, strict=True)
        )
        return replace(self, types=types, **_LEFT_OUT)


_MACHINES = 1  # of a tier that states none of them
OF_TYPES = (
    *("machines", "price_usd_per_hour", "speed_factor", "calibration"),
    *("gpus", "cores", "memory_gib"),
)
"""What a tier with types has from them."""
_LEFT_OUT: dict[str, Any] = {
    each.name: each.default for each in fields(Tier) if each.name in OF_TYPES
}


def _least(values: Sequence[float | None]) -> float | None:
    """Return what every type has; None: one of them does not state it."""
    known = [each for each in values if each is not None]
    return min(known) if len(known) == len(values) else None
