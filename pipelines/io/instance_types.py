"""Instance types that can be rented, with their prices: a catalogue as data, for users to extend.

date: 2025-01-01               # of all types that do not state their own; so are the next two
provider: aws
source: our contract
types:
  - {name: g4dn.xlarge, price_usd_per_hour: 0.526, accelerator: NVIDIA T4, memory_gb: 16}
  - {name: old.box, price_usd_per_hour: 0, date: 2024-06-30, provider: ourselves, source: paid}

The built-in one is `instance_types.yaml` beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from pathlib import Path

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.strict import parse_document
from circinus.pipelines.ranges import PRICE_USD_PER_HOUR

_SHARED = ("date", "provider", "source")
_TOP = (*_SHARED, "types")


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedType:
    """What can be rented, and what an hour of it costs."""

    name: str  # unique in a catalogue
    price_usd_per_hour: float
    date: str  # of the price, `2025-01-31`
    provider: str  # who rents it out
    source: str  # of the price, in words
    accelerator: str | None = None  # its name; None: none
    memory_gb: float | None = None  # of the machine, `> 0`; None: not stated

    def __post_init__(self) -> None:
        for each in ("name", "date", "provider", "source", "accelerator"):
            value = getattr(self, each)
            absent = value is None and each == "accelerator"
            text = isinstance(value, str) and value != ""
            checks.require(absent or text, each, "must be text", value)
        checks.name("name", self.name)
        for number in ("price_usd_per_hour", "memory_gb"):
            value = getattr(self, number)
            absent = value is None and number == "memory_gb"
            # not isinstance: a truth value is an int
            checks.require(
                absent or type(value) in (int, float), number, "must be a number", value
            )
        PRICE_USD_PER_HOUR.check("price_usd_per_hour", self.price_usd_per_hour)
        checks.positive("memory_gb", self.memory_gb)
        try:
            date.fromisoformat(self.date)
        except ValueError as error:
            raise InvalidInput.of("date", "must be a date, as 2025-01-31", self.date) from error


Catalogue = Mapping[str, PricedType]
"""By name."""


def parse_catalogue(data: bytes, *, field: str = "prices") -> Catalogue:
    """Return the types of a YAML text; InvalidInput that names place, rule and value."""
    document = parse_document(data, field=field)
    _known(document, _TOP, field)
    types = document.get("types")
    good = isinstance(types, list) and len(types) > 0
    checks.require(good, "types", "must be a list with an entry at least", types)
    shared = {name: document[name] for name in _SHARED if name in document}
    read = [_type(each, shared, f"types[{i}]") for i, each in enumerate(_list(types))]
    checks.unique("name of a type", [each.name for each in read])
    return {each.name: each for each in read}


@cache
def known_types() -> Catalogue:
    """Return the built-in catalogue: list prices of a few types, to be checked before use."""
    return parse_catalogue(Path(__file__).with_suffix(".yaml").read_bytes())


def _type(entry: object, shared: Mapping[str, object], place: str) -> PricedType:
    if not isinstance(entry, dict):
        raise InvalidInput.of(place, "must be a mapping", entry)
    names = [each.name for each in fields(PricedType)]
    _known(entry, names, place)
    values = {**shared, **entry}
    for name in names[:5]:
        checks.require(name in values, f"{place}.{name}", "must be given", None)
    try:
        return PricedType(**values)
    except InvalidInput as error:
        (violation,) = error.violations
        raise InvalidInput.of(
            f"{place}.{violation.field}", violation.rule, values.get(violation.field)
        ) from error


def _known(document: Mapping[str, object], names: Sequence[str], place: str) -> None:
    for name in document:
        rule = f"must have only the fields {', '.join(names)}"
        checks.require(name in names, place, rule, name)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
