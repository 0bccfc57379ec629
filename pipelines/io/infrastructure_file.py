"""An infrastructure as plain data, as YAML files and HTTP bodies write it: docs/infrastructure.md.

Prices that a document names instead of stating (`price: {genai: {model, provider, date}}`) are
looked up when it is read and stored as they were then, with their source: what is stored needs no
list of prices any more, and stays as it was when a list is corrected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from itertools import chain, islice
from math import frexp, ldexp
from typing import Annotated, Any, cast

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from circinus.pipelines import ranges
from circinus.pipelines.errors import MOST_VIOLATIONS, InvalidInput, Violation
from circinus.pipelines.io.price_list import listed_price
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits
from circinus.pipelines.model.infrastructure import DeviceKind, Infrastructure, Link
from circinus.pipelines.model.shares import Gpus, GpuSharing
from circinus.pipelines.model.tiers import OF_TYPES, Calibration, ClassSpeed, MachineType, Tier

_BYTES_PER_MBIT = 1e6 / 8
_CALL = {"call_s": 0.0007, "call_s_per_byte": 6e-9}
"""What a call costs a worker of this project, on two shared cores (docs/infrastructure.md)."""
_WITHIN = 1.3
"""How many times as long as profiled requests may take on quotas, at most (ADR 0071)."""


@dataclass(frozen=True, kw_only=True)
class _LinkDocument:
    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    bandwidth_mbit_per_s: Annotated[float, ranges.BANDWIDTH_MBIT_PER_S]
    delay_s: Annotated[float, ranges.DELAY_S] = 0.0
    emulated: bool = False


def _link(document: _LinkDocument) -> Link:
    a, b = document.between
    return Link(
        between=(a, b),
        bandwidth_bytes_per_s=document.bandwidth_mbit_per_s * _BYTES_PER_MBIT,
        delay_s=document.delay_s,
        emulated=document.emulated,
    )


@dataclass(frozen=True, kw_only=True)
class _DeviceDocument:
    name: str
    machines: Annotated[int, ranges.MACHINES] = 1
    speed_factor: Annotated[float, ranges.SPEED_FACTOR] | None = None
    bandwidth_mbit_per_s: Annotated[float, ranges.BANDWIDTH_MBIT_PER_S] | None = None
    delay_s: Annotated[float, ranges.DELAY_S] | None = None
    # of drawn ones, unlike each other: speed and bandwidth are medians of log-normal figures,
    # whose logarithms deviate by that of `spread`
    spread: Annotated[float, ranges.TIMES] | None = None
    seed: Annotated[int, ranges.SEED] = 0


def _devices(document: _DeviceDocument) -> tuple[DeviceKind, ...]:
    """Return the kinds of an entry: itself, or as many as are drawn, `NAME-1` and so on."""
    for name, within in ranges.ranges_of(_DeviceDocument).items():
        within.check(name, getattr(document, name))
    if document.spread is None:
        rate = document.bandwidth_mbit_per_s
        kind = DeviceKind(
            name=document.name,
            machines=document.machines,
            speed_factor=document.speed_factor,
            bandwidth_bytes_per_s=None if rate is None else rate * _BYTES_PER_MBIT,
            delay_s=document.delay_s,
        )
        return (kind,)
    rng = np.random.Generator(np.random.PCG64(document.seed))
    times = document.spread ** rng.standard_normal((document.machines, 2))
    each = [
        replace(
            document,
            name=f"{document.name}-{number}",
            machines=1,
            speed_factor=_drawn(document.speed_factor, faster, ranges.SPEED_FACTOR),
            bandwidth_mbit_per_s=_drawn(
                document.bandwidth_mbit_per_s, wider, ranges.BANDWIDTH_MBIT_PER_S
            ),
            spread=None,
        )
        for number, (faster, wider) in enumerate(times.tolist(), 1)
    ]
    return tuple(kind for drawn in each for kind in _devices(drawn))


def _drawn(median: float | None, times: float, within: ranges.Range) -> float | None:
    """Return a drawn figure in its range, with so few binary digits that it is written exactly."""
    if median is None:
        return None
    digits, exponent = frexp(median * times)
    figure = ldexp(round(digits * 2**_DIGITS), exponent - _DIGITS)
    return min(max(figure, within.least), within.most)


_DIGITS = 16
"""Binary ones of a drawn figure."""


@dataclass(frozen=True, kw_only=True)
class _Document:
    name: str
    origin: str | None = None
    tiers: tuple[Tier, ...]
    links: tuple[Annotated[_LinkDocument, AfterValidator(_link)], ...] = ()
    devices: tuple[Annotated[_DeviceDocument, AfterValidator(_devices)], ...] = ()


_READER = TypeAdapter[list[_Document]](
    list[_Document],  # of one: a list takes settings, and hands them to all that is in it
    config=ConfigDict(extra="forbid", strict=True),
)
_KINDS = {1: _Document, 3: Tier, 4: Calibration, 6: ClassSpeed}
"""By how deep a field of it lies; at 3 there are links, too, and types lie two deeper."""
_OF_ENDPOINTS = {"price": CallPrice, "limits": RateLimits}

_RULES = {
    "missing": "must be given",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "dataclass_type": "must be a mapping",
    "too_short": "must name two tiers",
    "too_long": "must name two tiers",
    "enum": f"must be one of {', '.join(GpuSharing)}",
}

_RANGES = {
    name: within
    for kind in (
        *(Tier, MachineType, Gpus, Calibration, ClassSpeed),
        *(Endpoint, CallPrice, RateLimits, _LinkDocument, _DeviceDocument),
    )
    for name, within in ranges.ranges_of(kind).items()
}


def infrastructure_from_dict(document: object) -> Infrastructure:
    """Return the infrastructure of a document; InvalidInput with every violation in it."""
    document, violations = with_prices(document)
    try:  # as JSON: there a mapping may stand for a dataclass where no text stands for a number
        (top,) = _READER.validate_json(to_json([document], fallback=repr))
    except ValidationError as error:
        each = (violation for detail in error.errors() for violation in _violations(detail))
        raise InvalidInput([*islice(chain(violations, each), MOST_VIOLATIONS)]) from error
    stated = cast("Mapping[str, Any]", document)
    twice = [
        Violation.of(f"tiers[{i}].{name}", "must be left out: the types say it", tier[name])
        for i, tier in enumerate(stated["tiers"])
        for name in OF_TYPES
        if tier.get("types") and name in tier
    ]
    if violations := [*violations, *twice, *_out_of_range(stated, "")][:MOST_VIOLATIONS]:
        raise InvalidInput(violations)
    parts = vars(top)
    return Infrastructure(**{**parts, "devices": tuple(chain.from_iterable(parts["devices"]))})


def with_calls(document: object) -> object:
    """Return a document whose tiers state what a call costs, and how far off predictions may be.

    Files that people write go through it: what they leave out is no promise that it is 0.
    """
    tiers = document.get("tiers") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(tiers, list | tuple):
        return document
    return {**document, "tiers": [_with_call(each) for each in tiers]}


def _with_call(tier: object) -> object:
    """Return a tier with what was measured of workers, if it states nothing of calls itself.

    An emulated one stretches operators by waiting, and no calls: its slower speed is taken out.
    """
    if not isinstance(tier, Mapping) or "endpoints" in tier:
        return tier
    stated = any(name in tier for name in (*_CALL, "call_delay_s", "calibration"))
    call = {} if stated else {name: each * _emulated(tier) for name, each in _CALL.items()}
    return {"within": _WITHIN, **call, **tier}


def _emulated(tier: Mapping[str, Any]) -> float:
    """Return the speed that a tier puts on by waiting; 1: none, or none that can be read."""
    machines = tier.get("types") or [tier] if tier.get("emulated") is True else []
    speeds = [each.get("speed_factor", 1.0) for each in machines if isinstance(each, Mapping)]
    known = (float(each) for each in speeds if isinstance(each, int | float) and each > 0)
    return min(known, default=1.0)


def infrastructure_to_dict(infrastructure: Infrastructure) -> dict[str, object]:
    """Return the document of an infrastructure; `infrastructure_from_dict` reads it back."""
    devices = [_device(asdict(each)) for each in infrastructure.devices]
    return {
        "name": infrastructure.name,
        "origin": infrastructure.origin,
        **({"devices": devices} if devices else {}),
        "tiers": [_tier(asdict(tier)) for tier in infrastructure.tiers],
        "links": [
            {
                "between": list(link.between),
                "bandwidth_mbit_per_s": link.bandwidth_bytes_per_s / _BYTES_PER_MBIT,
                "delay_s": link.delay_s,
                "emulated": link.emulated,
            }
            for link in infrastructure.links
        ],
    }


def _device(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the document of a kind of devices, without what it does not state."""
    stated = _stated(fields)
    if (rate := stated.pop("bandwidth_bytes_per_s", None)) is not None:
        stated["bandwidth_mbit_per_s"] = rate / _BYTES_PER_MBIT
    return stated


def _out_of_range(document: object, path: str) -> Iterator[Violation]:
    """Yield the numbers of a document, at any depth, that are outside of their range."""
    if isinstance(document, list | tuple):
        for i, each in enumerate(document):
            yield from _out_of_range(each, f"{path}[{i}]")
    if not isinstance(document, Mapping):
        return
    for name, value in document.items():
        where = f"{path}.{name}".removeprefix(".")
        if name in _RANGES and not isinstance(value, Mapping):
            if not _RANGES[name].holds(value):
                yield Violation.of(where, _RANGES[name].rule, value)
        else:
            yield from _out_of_range(value, where)


def _tier(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the document of a tier or type; what a tier has from its types is left out.

    So is what a tier with endpoints has not: machines and what they are like.
    """
    stated = _stated(fields)
    if endpoints := stated.pop("endpoints", ()):
        return {"name": stated["name"], "endpoints": [_stated(each) for each in endpoints]}
    types = [_tier(each) for each in stated.pop("types", ())]
    if not types:
        return stated
    return {name: stated[name] for name in stated if name not in OF_TYPES} | {"types": types}


def _stated(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not none, of a mapping and of those that are its values."""
    stated = {name: value for name, value in mapping.items() if value is not None}
    plain = {n: v.value if isinstance(v, Enum) else v for n, v in stated.items()}
    return {n: _stated(v) if isinstance(v, Mapping) else v for n, v in plain.items()}


def _violations(error: ErrorDetails) -> list[Violation]:
    _, *place = error["loc"]
    broken = error.get("ctx", {}).get("error")
    if isinstance(broken, InvalidInput):
        return [
            Violation(f"{_path(place)}: {f.field}", f.rule, f.value) for f in broken.violations
        ]
    if error["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        rule = f"must have only the fields {', '.join(each.name for each in fields(_kind(place)))}"
        return [Violation.of(_path(place[:-1]), rule, place[-1])]
    rule = _RULES.get(error["type"], error["msg"])
    return [Violation.of(_path(place), rule, None if rule == "must be given" else error["input"])]


def _kind(place: list[int | str]) -> Any:  # noqa: ANN401 - a dataclass, as `fields` takes it
    if place[0] == "links" and len(place) > 1:
        return _LinkDocument
    if place[0] == "devices" and len(place) > 1:
        return _DeviceDocument
    if "gpus" in place[:-1]:
        return Gpus
    if place[2:3] == ["types"]:
        return MachineType if len(place) == 5 else _KINDS[len(place) - 2]
    if place[2:3] == ["endpoints"]:
        return Endpoint if len(place) == 5 else _OF_ENDPOINTS[str(place[4])]
    return _KINDS[len(place)]


def _path(place: list[int | str]) -> str:
    if len(place) < 2:
        return ".".join(["infrastructure", *map(str, place)])
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]


_NAMED = ("model", "provider", "date")
_BOUNDS = ("most_input_tokens", "most_output_tokens")


def with_prices(document: object) -> tuple[object, list[Violation]]:
    """Return a document of an infrastructure with the prices that it names, and what is wrong.

    Bounds on tokens that are left out are the model's context. What is no such document stays as
    it is; a price that cannot be looked up is empty.
    """
    violations: list[Violation] = []
    if not isinstance(document, Mapping) or not _is_list(document.get("tiers")):
        return document, violations
    tiers = []
    for i, tier in enumerate(document["tiers"]):
        if isinstance(tier, Mapping) and _is_list(tier.get("endpoints")):
            where = f"tiers[{i}].endpoints"
            numbered = enumerate(tier["endpoints"])
            endpoints = [_priced(each, f"{where}[{k}].price", violations) for k, each in numbered]
            tier = {**tier, "endpoints": endpoints}
        tiers.append(tier)
    return {**document, "tiers": tiers}, violations


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _priced(endpoint: object, where: str, violations: list[Violation]) -> object:
    named_price = endpoint.get("price") if isinstance(endpoint, Mapping) else None
    if (
        not isinstance(endpoint, Mapping)
        or not isinstance(named_price, Mapping)
        or "genai" not in named_price
    ):
        return endpoint
    malformed = [*_malformed(named_price, where)]
    price: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    if not malformed:
        named = named_price["genai"]
        most = endpoint.get("most_input_tokens")
        most = most if isinstance(most, int) and most >= 1 else None
        try:
            listed = listed_price(named["model"], named["provider"], named["date"], most)
        except InvalidInput as error:
            malformed = [
                Violation(f"{where}.genai.{f.field}", f.rule, f.value) for f in error.violations
            ]
        else:
            price = asdict(listed.price)
            bounds = dict.fromkeys(_BOUNDS, listed.context_tokens)
    violations += malformed
    stated = {name: value for name, value in endpoint.items() if value is not None}
    return {**bounds, **stated, "price": price}


def _malformed(price: Mapping[str, Any], where: str) -> list[Violation]:
    """Return what is wrong with the form of a price that is to be looked up."""
    rule = "must be left out: the price is looked up"
    violations = [
        Violation.of(f"{where}.{name}", rule, price[name]) for name in price if name != "genai"
    ]
    named = price["genai"]
    if not isinstance(named, Mapping):
        return [*violations, Violation.of(f"{where}.genai", "must be a mapping", named)]
    rule = f"must have only the fields {', '.join(_NAMED)}"
    violations += [
        Violation.of(f"{where}.genai", rule, name) for name in named if name not in _NAMED
    ]
    for name in _NAMED:
        if name not in named:
            violations.append(Violation.of(f"{where}.genai.{name}", "must be given", None))
        elif not isinstance(named[name], str):
            violations.append(Violation.of(f"{where}.genai.{name}", "must be text", named[name]))
    return violations
