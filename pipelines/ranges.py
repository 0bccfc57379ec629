"""The ranges of the numbers that people hand over: in queries, bodies, infrastructure files.

Wide enough for whatever is meant, and narrow enough that nothing which is computed from such
numbers overflows. A field names its range in its type, and that is the one place: schemas and
readers of files take it from there. Values that are worked out from others (a tier as it was
observed, say) need only be finite and of the same sign, which `check_fields` ensures.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Union, cast, get_args, get_origin, get_type_hints

from circinus.pipelines import checks


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most of a number, both included."""

    least: float
    most: float
    whole: bool = False  # whether it counts something

    @property
    def rule(self) -> str:
        """What holds for a value within, in words."""
        return f"must be from {self.least:.12g} to {self.most:.12g}"

    def holds(self, value: float | None) -> bool:
        """Return whether a value is within; None, a value left out, is."""
        return value is None or self.least <= value <= self.most

    def check(self, field: str, value: float | None) -> None:
        """Raise InvalidInput unless a value is within."""
        checks.require(self.holds(value), field, self.rule, value)

    def check_worked_out(self, field: str, value: float | None) -> None:
        """Raise InvalidInput unless a value that may be worked out is finite, and of its sign."""
        if self.whole or self.least >= 1:
            checks.at_least(field, value, self.least)
        elif self.least > 0:
            checks.positive(field, value)
        else:
            checks.non_negative(field, value)


def check_fields(prefix: str, value: object) -> None:
    """Raise InvalidInput for the first field of a dataclass value that its range forbids.

    It may have been worked out from others, see `Range.check_worked_out`.
    """
    for name, within in ranges_of(cast("Hashable", type(value))).items():
        within.check_worked_out(f"{prefix}{name}", getattr(value, name))


@cache
def ranges_of(kind: Hashable) -> Mapping[str, Range]:
    """Return the ranges that the types of a dataclass's fields name, by field."""
    types = get_type_hints(kind, include_extras=True)
    return {name: within for name, hint in types.items() for within in _ranges_in(hint)}


def _ranges_in(hint: object) -> list[Range]:
    parts = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return [within for part in parts for within in _ranges_in(part)]
    is_annotated = get_origin(hint) is Annotated
    return [part for part in parts if is_annotated and isinstance(part, Range)]


WEIGHT = Range(0.001, 1000)
RATE_PER_S = Range(1e-6, 1e6)
LATENCY_S = Range(1e-6, 1e6)
ACCURACY = Range(0, 1)
COST_USD_PER_HOUR = Range(0, 1e9)
"""Of a plan; a machine's price is that of one."""
DURATION_S = Range(0.001, 1e9)
"""Of serving; 1e9: 31 years."""
LIMIT_S = Range(0.001, 1e6)
"""Of what planning may spend; 1e6: eleven days."""
LIMIT_USD = Range(0, 1e6)
CONFIGURATIONS = Range(1, 2**31 - 1, whole=True)
"""That are measured."""
MACHINES = Range(0, 100_000, whole=True)
"""Of a tier: more is a slip of the hand."""
SEED = Range(0, 2**31 - 1, whole=True)
"""Of devices that are drawn."""
CORES = Range(0.001, 10_000)
"""Of one machine, as those below."""
MEMORY_GIB = Range(0.001, 1e6)
GPUS = Range(1, 1000)
GPU_PARTS = Range(1, 1000)
PRICE_USD_PER_HOUR = Range(0, 1e6)
SPEED_FACTOR = Range(1e-6, 1e6)
TIMES = Range(1, 1e6)
"""That a figure may be off by."""
BANDWIDTH_MBIT_PER_S = Range(0.001, 1e7)
DELAY_S = Range(0, 3600)
CALL_S = Range(0, 3600)
CALL_S_PER_BYTE = Range(0, 1)
USD_PER_MILLION = Range(0, 1e6)
"""Of tokens."""
CALL_USD = Range(0, 1e4)
USD_PER_S = Range(0, 1e3)
REQUESTS_PER_MINUTE = Range(1, 10**9)
TOKENS_PER_MINUTE = Range(1, 10**12)
CONCURRENT = Range(1, 10**6)
TOKENS = Range(1, 10**9)
"""That one call reads or writes."""
TIMEOUT_S = Range(0.001, 86_400)
"""Of a call; 86,400: a day."""
COST_USD_PER_1000_REQUESTS = Range(0, 1e9)
