"""What plans that call endpoints look like: over HTTP, in tables, and on the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from math import inf

import pytest
from rich.console import Console

from circinus.api.query_file import query_of
from circinus.api.schemas.explanation import ObjectiveChange
from circinus.api.schemas.plans import PlanView, plan_view, to_plan
from circinus.api.schemas.query import to_query
from circinus.api.store.records import from_document, to_document
from circinus.api.text import formats
from circinus.api.text.tables import plans_table
from circinus.api.use_cases.changes import changed_query
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import Endpoint, Usage
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.plan import Deployment, Outlook, Plan, PlanCalls
from circinus.pipelines.model.slo import Estimate, SloState
from circinus.pipelines.model.tiers import Tier
from tests.api.fakes import PIPELINE, plan
from tests.api.malformed import query

LAB = Infrastructure(
    name="lab",
    tiers=(Tier(name="cloud"), Tier(name="api", endpoints=(Endpoint(name="small"),))),
    links=(Link(between=("cloud", "api"), bandwidth_bytes_per_s=1e6),),
)
USED = Usage(calls=1.2, input_tokens=800, cached_tokens=100, output_tokens=50, usd=0.0005)


def calling(most_per_s: float = 4.0) -> Plan:
    """Return a plan that calls `small` and needs no machine: 2 requests/s at $0.0005 each."""
    graph = PIPELINE.graph
    names = [operator.name for operator in graph.operators]
    deployment = Deployment(
        placement=dict.fromkeys(names, "api"),
        allocation=dict.fromkeys(names, 1.0),
        replicas=dict.fromkeys(names, 1),
        remote=frozenset({"api"}),
    )
    usd = Estimate(value=0.0005, low=0.0004, high=0.0006, confidence=0.95, inputs=20)
    return replace(
        plan(),
        deployment=deployment,
        demand=(),
        cost_usd_per_hour=3.6,  # 2/s x 3600 s x 0.0005
        tier_service_s={},
        calls=PlanCalls(usd_per_request=usd, per_request={"small": USED}, most_per_s=most_per_s),
        calls_usd_per_hour=3.6,
        cost_usd_per_1000_requests=0.5,
        requests_per_s=2.0,
    )


def shown(of: Plan) -> PlanView:
    return plan_view(of, to_query(query_of(query())).slo, LAB)


def test_a_bound_on_a_cost_that_is_not_there_takes_a_value_only() -> None:
    asked = to_query(query_of(query()))
    with pytest.raises(InvalidInput, match="cost_per_1000 must be a value"):
        changed_query(asked, ObjectiveChange(cost_per_1000="2x"))
    found = changed_query(asked, ObjectiveChange(cost_per_1000="1.5"))
    assert found.slo.cost_usd_per_1000_requests == 1.5
    twice = changed_query(found, ObjectiveChange(cost_per_1000="2x"))
    assert twice.slo.cost_usd_per_1000_requests == 3.0


def test_a_query_asks_for_dollars_per_1000_requests_and_its_plans_say_whether_they_hold() -> None:
    document = query()
    slo = document["slo"]
    assert isinstance(slo, dict)
    asked = to_query(query_of(document | {"slo": {**slo, "cost_usd_per_1000_requests": 0.55}}))
    assert asked.slo.cost_usd_per_1000_requests == 0.55
    states = plan_view(calling(), asked.slo, LAB).states
    assert states["cost_per_1000"] is SloState.LIKELY  # 0.4 to 0.6, 0.5 in the middle
    assert "cost_per_1000" not in shown(calling()).states


def test_a_plan_that_calls_nothing_shows_no_calls() -> None:
    view = shown(replace(plan(), calls=None))
    assert (view.calls, view.calls_usd_per_hour, view.remote) == (None, 0.0, [])
    assert view.cost_usd_per_1000_requests is None
    assert formats.cost(view) == formats.dollars(view.cost_usd_per_hour)


def test_calls_are_told_by_endpoint_with_what_a_request_uses() -> None:
    told = shown(calling()).model_dump(mode="json")
    assert told["calls"]["per_request"] == {
        "small": {
            "calls": 1.2,
            "input_tokens": 800.0,
            "cached_tokens": 100.0,
            "output_tokens": 50.0,
            "usd": 0.0005,
        }
    }
    assert told["calls"]["usd_per_request"]["high"] == 0.0006
    assert told["calls"]["most_per_s"] == 4.0
    assert (told["calls_usd_per_hour"], told["cost_usd_per_1000_requests"]) == (3.6, 0.5)
    assert told["remote"] == ["api"]


@pytest.mark.parametrize("most_per_s", [4.0, inf])
def test_a_plan_with_calls_survives_the_way_to_a_plan_file_and_back(most_per_s: float) -> None:
    made = calling(most_per_s)
    text = shown(made).model_dump_json()
    back = to_plan(PlanView.model_validate_json(text), PIPELINE.graph)
    assert back == replace(made, p99_over_mean=back.p99_over_mean)
    assert back.id == made.id


_AHEAD = Estimate(value=0.0006, low=0.0003, high=inf, confidence=0.95, inputs=20)


@pytest.mark.parametrize("usd", [None, _AHEAD])
def test_dollars_ahead_are_shown_and_survive_the_way_to_a_plan_file_and_back(
    usd: Estimate | None,
) -> None:
    made = calling()
    ahead = Outlook(accuracy=made.accuracy, latency_s=made.latency_s, usd_per_request=usd)
    text = shown(replace(made, future=ahead)).model_dump_json()
    told = json.loads(text)["future"]["usd_per_request"]
    assert told == (
        None
        if usd is None
        else {
            "value": 0.0006,
            "low": 0.0003,
            "high": None,
            "confidence": 0.95,
            "inputs": 20,
            "left_out": 0,
        }
    )
    back = to_plan(PlanView.model_validate_json(text), PIPELINE.graph)
    assert back.future == ahead
    earlier = json.loads(text)
    del earlier["future"]["usd_per_request"]  # as it was written before it was there
    view = PlanView.model_validate(earlier)
    assert to_plan(view, PIPELINE.graph).future == replace(ahead, usd_per_request=None)


@pytest.mark.parametrize("most_per_s", [4.0, inf])
def test_a_plan_with_calls_survives_the_way_to_the_store_and_back(most_per_s: float) -> None:
    made = calling(most_per_s)
    assert from_document(Plan, to_document(made)) == made


def test_tables_tell_dollars_per_1000_requests_where_endpoints_are_called() -> None:
    console = Console(width=160, record=True, file=StringIO())
    console.print(plans_table([shown(calling()), shown(plan())]))
    told = console.export_text()
    assert told.count("per 1,000 requests") == 1
    assert "api: add" in told  # no share of a machine
    assert "$3.6000/h, $0.5000 per 1,000 requests" in " ".join(told.split())
    assert "small: 1.2 calls, 800 tokens read, 50 written, $0.0005 a request" in told


def test_objectives_are_told_with_the_bound_on_the_cost_of_requests() -> None:
    document = query()
    slo = document["slo"]
    assert isinstance(slo, dict)
    request = query_of(document | {"slo": {**slo, "cost_usd_per_1000_requests": 2.5}})
    assert "cost <= $2.50 per 1,000 requests" in formats.objectives(request)
    assert "$2.5/1000" in formats.bounds(request)
