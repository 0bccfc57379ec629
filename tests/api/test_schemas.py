"""What crosses the edge: strict on the way in, tolerant on the way out."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from circinus.api.query_file import query_of
from circinus.api.schemas.base import HealthView, ProblemDetails
from circinus.api.schemas.deployments import ExampleReference, RequestBody
from circinus.api.schemas.plans import EstimateView, PlanView, plan_view
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.schemas.service import infrastructure_view, pipeline_view
from circinus.api.schemas.violations import violations_of
from circinus.deploy.methods import PUBLISHED
from circinus.pipelines.errors import MOST_VIOLATIONS, InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Estimate, Slo, SloState
from circinus.pipelines.registry import ListedPipeline
from tests.api.fakes import PIPELINE
from tests.api.malformed import DOCUMENTS, Wrong, query

SEMANTIC = {  # what only pipeline, infrastructure and the service's method can tell
    "unknown pipeline",
    "restriction of an unknown operator",
    "restriction to an unknown tier",
    "restriction away from the device with everything on it",
    "restriction of an unknown knob",
    "restriction to an unknown value",
    "planning with a rule where the strategy decides",
    "planning with betting on strata",
    "planning with betting in the published order",
}


@pytest.mark.parametrize(
    "wrong", [w for w in DOCUMENTS if w.name not in SEMANTIC], ids=lambda wrong: wrong.name
)
def test_a_malformed_query_is_refused_with_field_rule_and_value(wrong: Wrong) -> None:
    with pytest.raises(InvalidInput) as caught:
        query_of(wrong.content)
    told = [f for f in caught.value.violations if f.field == wrong.field and wrong.rule in f.rule]
    assert told, caught.value
    assert wrong.value in told[0].value


@pytest.mark.parametrize("value", [float("nan"), inf, -inf])
@pytest.mark.parametrize("field", ["weight", "duration_s", "request_rate_per_s"])
def test_no_number_that_json_lacks_is_taken(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must be finite"):
        query_of(query(**{field: value}))


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({}, "the whole", "must have exactly one of input, example"),
        ({"input": 1, "example": {"index": 0}}, "the whole", "must have exactly one of"),
        ({"example": None}, "the whole", "must have exactly one of"),
        ({"example": {"index": 200}}, "example.index", "must be less than count"),
        ({"example": {"index": -1}}, "example.index", "must be >= 0"),
        ({"example": {"index": 0, "seed": -1}}, "example.seed", "must be >= 0"),
        ({"example": {}}, "example.index", "must be given"),
        ({"example": {"index": 0, "of": 3}}, "example.of", "must be one of the known fields"),
        ({"input": 1, "timeout_s": 0}, "timeout_s", "must be >= 0.001"),
        ({"input": 1, "timeout_s": 601}, "timeout_s", "must be <= 600"),
        ({"input": 1, "priority": 1}, "priority", "must be one of the known fields"),
    ],
)
def test_a_malformed_request_is_refused(body: object, field: str, rule: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RequestBody.model_validate(body)
    violations = violations_of(caught.value, model=RequestBody)
    assert any(violation.field == field and rule in violation.rule for violation in violations), (
        violations
    )


def test_the_input_of_a_request_may_be_null() -> None:
    assert RequestBody.model_validate({"input": None}).input is None


def test_the_last_example_is_within_its_count() -> None:
    assert ExampleReference(index=199).index == 199


def test_faults_of_a_list_leave_out_leading_parts() -> None:
    details = [{"type": "missing", "loc": ("body", "slo", "accuracy"), "msg": "", "input": {}}]
    (violation,) = violations_of(details, skip=1)
    assert str(violation) == "slo.accuracy must be given, got nothing."


def test_an_unknown_kind_of_finding_still_has_a_rule() -> None:
    details = [{"type": "brand_new", "loc": ("slo", 3), "msg": "No good", "input": 1}]
    (violation,) = violations_of(details)
    assert str(violation) == "slo[3] must be valid (No good), got 1."


def test_only_so_many_faults_are_listed() -> None:
    document = query(**{f"field{i}": i for i in range(MOST_VIOLATIONS + 10)})
    with pytest.raises(InvalidInput) as caught:
        query_of(document)
    assert len(caught.value.violations) == MOST_VIOLATIONS


def test_a_request_with_defaults_is_the_query_with_defaults() -> None:
    found = to_query(query_of(query()))
    assert found == Query(pipeline="digits", slo=Slo(accuracy=0.8, latency_s=0.5))
    assert found.limits == PlanningLimits()


def test_a_query_takes_the_name_of_an_imported_pipeline() -> None:
    request = query_of(query(pipeline="my.module:pipeline"))
    assert to_query(request, pipeline="mine").pipeline == "mine"


@pytest.mark.parametrize(
    ("planning", "parts"),
    [
        (None, ("cmbo", "t_test", "stratified")),
        ({}, ("cmbo", "t_test", "stratified")),
        ({"method": "default"}, ("multi_fidelity", None, "random")),
        ({"method": "published"}, ("cmbo", "t_test", "stratified")),
        ({"method": "default", "strategy": "random"}, ("random", "betting", "random")),
        ({"strategy": "exhaustive"}, ("exhaustive", "t_test", "stratified")),
        ({"stopping": "betting", "sampling": "random"}, ("cmbo", "betting", "random")),
    ],
)
def test_what_a_query_says_of_its_planning_goes_before_the_method_of_who_plans(
    planning: object, parts: tuple[str, str | None, str]
) -> None:
    found = to_query(query_of(query(planning=planning)), method=PUBLISHED).planning
    assert (found.strategy, found.stopping, found.sampling) == parts


@given(
    accuracy=st.floats(0, 1),
    latency_s=st.floats(1e-6, 1e6),
    weight=st.floats(0.001, 1000),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_accepted_request_survives_json(
    accuracy: float, latency_s: float, weight: float, seed: int
) -> None:
    request = query_of(
        query(slo={"accuracy": accuracy, "latency_s": latency_s}, weight=weight, seed=seed)
    )
    assert QueryRequest.model_validate_json(request.model_dump_json()) == request
    assert QueryRequest.model_validate(request.model_dump(mode="json")) == request
    to_query(request)  # no rule of the vocabulary is missing from the schema


def test_an_answer_may_have_fields_that_a_reader_does_not_know() -> None:
    assert HealthView.model_validate_json('{"version": "9", "mood": "good"}').version == "9"


GRAPH = PipelineGraph(
    name="pair",
    operators=(
        OperatorSpec(name="a", knobs=(Knob(name="k", values=(1, 2)),)),
        OperatorSpec(name="b", after=("a",)),
    ),
)


def _plan(*, high: float = 0.3) -> Plan:
    deployment = Deployment(
        placement={"a": "device", "b": "cloud"},
        allocation={"a": 1.0, "b": 0.5},
        replicas={"a": 1, "b": 1},
    )
    return Plan(
        pipeline="pair",
        configuration=Configuration((("a", "k", 2),)),
        deployment=deployment,
        demand=deployment.demand(GRAPH),
        accuracy=Estimate(value=0.9, low=0.8, high=0.95, confidence=0.95, inputs=40),
        latency_s=Estimate(value=0.2, low=0.1, high=high, confidence=0.95, inputs=40),
        cost_usd_per_hour=0.2,
        tier_service_s={"device": 0.1, "cloud": 0.05},
    )


def test_a_plan_is_shown_with_its_states_and_what_is_emulated() -> None:
    view = plan_view(_plan(), Slo(accuracy=0.8, latency_s=0.25), PRESETS["local"])
    assert view.id == _plan().id
    assert view.states == {"accuracy": SloState.MET, "latency": SloState.LIKELY}
    assert view.emulated == ["device"]
    assert view.configuration == {"a": {"k": 2}}
    assert [(item.tier, item.share) for item in view.demand] == [("device", 1.0), ("cloud", 0.5)]
    assert PlanView.model_validate_json(view.model_dump_json()) == view


def test_an_unbounded_interval_has_no_end_in_json() -> None:
    view = plan_view(_plan(high=inf), Slo(accuracy=0.8, latency_s=0.25), PRESETS["local"])
    assert view.latency_s.high is None
    assert EstimateView.model_validate_json(view.latency_s.model_dump_json()) == view.latency_s


def test_a_pipeline_is_shown_with_the_size_of_its_space() -> None:
    view = pipeline_view(ListedPipeline(name="add", pipeline=PIPELINE, missing=()))
    assert view.configurations == 2
    assert [knob.values for knob in view.operators[0].knobs] == [[0, 1]]


@pytest.mark.parametrize("name", list(PRESETS))
def test_an_infrastructure_is_shown_whole(name: str) -> None:
    view = infrastructure_view(PRESETS[name])
    assert [tier.name for tier in view.tiers] == [tier.name for tier in PRESETS[name].tiers]
    assert len(view.links) == len(PRESETS[name].links)
    assert view.origin == PRESETS[name].origin


def test_a_problem_has_the_fields_of_rfc_9457() -> None:
    problem = ProblemDetails(title="Bad", status=422, detail="no", instance="/v1/queries")
    assert set(problem.model_dump()) == {
        "type",
        "title",
        "status",
        "detail",
        "instance",
        "errors",
    }


def test_a_document_of_a_query_is_read_as_the_query_also_where_null_means_something() -> None:
    asked = query(limits={"response_s": None}, device=None)
    request = QueryRequest.model_validate(asked)
    assert request.document["limits"]["response_s"] is None
    assert "device" not in request.document
    assert QueryRequest.model_validate(request.document) == request
