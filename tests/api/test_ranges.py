"""Every number that comes in has a range, which its schema states; what was stored is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, nextafter
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from circinus.api.query_file import query_of
from circinus.api.schemas.base import STORED
from circinus.api.schemas.deployments import RequestBody
from circinus.api.schemas.explanation import ReplanBody, WhatIfBody
from circinus.api.schemas.progress import PageRequest
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.schemas.service import EmulationBody, MachinesBody
from circinus.api.settings import Settings
from circinus.pipelines import ranges
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.ranges import Range
from tests.api.malformed import query

BODIES = (
    QueryRequest, PageRequest, ReplanBody, WhatIfBody, PreviewBody, MachinesBody, EmulationBody,
    RequestBody, Settings,
)  # fmt: skip
NUMBERS: Mapping[str, Range] = {
    "weight": ranges.WEIGHT,
    "request_rate_per_s": ranges.RATE_PER_S,
    "duration_s": ranges.DURATION_S,
    "slo.latency_s": ranges.LATENCY_S,
    "slo.cost_usd_per_hour": ranges.COST_USD_PER_HOUR,
    "limits.profiling_s": ranges.LIMIT_S,
    "limits.profiling_usd": ranges.LIMIT_USD,
    "limits.response_s": ranges.LIMIT_S,
    "device.speed_factor": ranges.SPEED_FACTOR,
    "device.bandwidth_mbit_per_s": ranges.BANDWIDTH_MBIT_PER_S,
    "device.delay_s": ranges.DELAY_S,
    "slo.cost_usd_per_1000_requests": ranges.COST_USD_PER_1000_REQUESTS,
}
OF_FILES: Mapping[str, Range] = {
    "tiers[0].machines": ranges.MACHINES,
    "tiers[0].price_usd_per_hour": ranges.PRICE_USD_PER_HOUR,
    "tiers[0].speed_factor": ranges.SPEED_FACTOR,
    "tiers[0].call_s": ranges.CALL_S,
    "tiers[0].call_s_per_byte": ranges.CALL_S_PER_BYTE,
    "tiers[0].call_delay_s": ranges.DELAY_S,
    "tiers[1].types[0].machines": ranges.MACHINES,
    "tiers[1].types[0].price_usd_per_hour": ranges.PRICE_USD_PER_HOUR,
    "tiers[0].calibration.tier_factor": ranges.SPEED_FACTOR,
    "tiers[0].calibration.within": ranges.TIMES,
    "tiers[0].calibration.speeds.p.o.high": ranges.SPEED_FACTOR,
    "tiers[2].endpoints[0].timeout_s": ranges.TIMEOUT_S,
    "tiers[2].endpoints[0].most_input_tokens": ranges.TOKENS,
    "tiers[2].endpoints[0].most_output_tokens": ranges.TOKENS,
    "tiers[2].endpoints[0].price.input_usd_per_million": ranges.USD_PER_MILLION,
    "tiers[2].endpoints[0].price.cached_usd_per_million": ranges.USD_PER_MILLION,
    "tiers[2].endpoints[0].price.output_usd_per_million": ranges.USD_PER_MILLION,
    "tiers[2].endpoints[0].price.call_usd": ranges.CALL_USD,
    "tiers[2].endpoints[0].price.usd_per_s": ranges.USD_PER_S,
    "tiers[2].endpoints[0].limits.requests_per_minute": ranges.REQUESTS_PER_MINUTE,
    "tiers[2].endpoints[0].limits.tokens_per_minute": ranges.TOKENS_PER_MINUTE,
    "tiers[2].endpoints[0].limits.concurrent": ranges.CONCURRENT,
    "links[0].bandwidth_mbit_per_s": ranges.BANDWIDTH_MBIT_PER_S,
    "links[0].delay_s": ranges.DELAY_S,
}


WHOLE = (
    ranges.MACHINES,
    ranges.TOKENS,
    ranges.REQUESTS_PER_MINUTE,
    ranges.TOKENS_PER_MINUTE,
    ranges.CONCURRENT,
)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_schema_states_the_range_of_every_number(body: type[BaseModel]) -> None:
    free = [
        path
        for path, number in _numbers(body.model_json_schema(), body.__name__)
        if not {"minimum", "exclusiveMinimum"} & number.keys()
        or not {"maximum", "exclusiveMaximum"} & number.keys()
    ]
    # The values of a knob are whatever its pipeline says; a restriction compares them only.
    assert [path for path in free if "KnobChoice" not in path] == []


def _numbers(schema: object, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    if isinstance(schema, list):
        for i, each in enumerate(schema):
            yield from _numbers(each, f"{path}[{i}]")
    if isinstance(schema, Mapping):
        if schema.get("type") in ("number", "integer"):
            yield path, schema
        for name, each in schema.items():
            yield from _numbers(each, f"{path}.{name}")


@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_of_a_query_is_taken_at_both_ends_of_its_range_and_not_beyond(path: str) -> None:
    within = NUMBERS[path]
    for value in (within.least, within.most):
        to_query(query_of(_with(path, value)))  # no rule of the vocabulary is in the way
    for value in (nextafter(within.least, -inf), nextafter(within.most, inf), 1e308):
        with pytest.raises(InvalidInput) as caught:
            query_of(_with(path, value))
        assert [violation.field for violation in caught.value.violations] == [path]


@pytest.mark.parametrize("path", NUMBERS)
def test_what_was_stored_before_there_was_a_range_is_read_as_it_is(path: str) -> None:
    stored = QueryRequest.model_validate(_with(path, 1e300), context=STORED)
    assert stored.model_dump_json(exclude_none=True).count("1e+300") == 1
    to_query(stored)


@pytest.mark.parametrize("value", [inf, "1", True, -(10**400)], ids=["inf", "text", "bool", "400"])
def test_what_was_never_taken_is_not_read_either(value: object) -> None:
    with pytest.raises(ValidationError, match="weight"):
        QueryRequest.model_validate(_with("weight", value), context=STORED)


@pytest.mark.parametrize("path", OF_FILES)
def test_a_number_of_an_infrastructure_is_taken_at_both_ends_and_not_beyond(path: str) -> None:
    within = OF_FILES[path]
    for value in (within.least, within.most):
        infrastructure_from_dict(_infrastructure(path, value))
    whole = within in WHOLE
    beyond = within.most + 1 if whole else nextafter(within.most, inf)
    with pytest.raises(InvalidInput) as caught:
        infrastructure_from_dict(_infrastructure(path, beyond))
    assert [(f.field, f.rule) for f in caught.value.violations] == [(path, within.rule)]


def _with(path: str, value: object) -> dict[str, object]:
    top, _, field = path.partition(".")
    if not field:
        return query(**{top: value})
    before = query().get(top, {})
    assert isinstance(before, dict)
    return query(**{top: before | {field: value}})


def _infrastructure(path: str, value: float) -> dict[str, object]:
    speed = {"factor": 1.0, "low": 1e-6, "high": 1.0, "repetitions": 1}
    tiers: dict[str, Any] = {
        "tiers[0]": {"name": "a"},
        "tiers[1]": {"name": "b"},
        "tiers[1].types[0]": {"name": "small"},
        "tiers[0].calibration": {"date": "2026-01-01", "share": 1.0, "tier_factor": 1.0},
        "tiers[0].calibration.speeds.p.o": speed,
        "links[0]": {"between": ["a", "b"], "bandwidth_mbit_per_s": 1.0},
        "tiers[2].endpoints[0]": {"name": "small"},
        "tiers[2].endpoints[0].price": {},
        "tiers[2].endpoints[0].limits": {},
    }
    where, _, name = path.rpartition(".")
    tiers[where][name] = value
    if "speeds" in path:
        speed["factor"] = speed["low"] = min(speed["low"], value)
    tiers["tiers[0].calibration"]["speeds"] = {"p.o": speed}
    if "calibration" in path:
        tiers["tiers[0]"]["calibration"] = tiers["tiers[0].calibration"]
    tiers["tiers[1]"]["types"] = [tiers["tiers[1].types[0]"]]
    parts = {of: tiers[f"tiers[2].endpoints[0].{of}"] for of in ("price", "limits")}
    called = tiers["tiers[2].endpoints[0]"] | parts
    return {
        "name": "lab",
        "tiers": [tiers["tiers[0]"], tiers["tiers[1]"], {"name": "c", "endpoints": [called]}],
        "links": [tiers["links[0]"], {"between": ["b", "c"], "bandwidth_mbit_per_s": 1.0}],
    }
