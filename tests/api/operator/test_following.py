"""What becomes of an object, look by look, whatever happens between the looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.operator.following import Event, QueryObject, Status, follow, release, transition
from circinus.api.operator.queries import QueryBook
from circinus.api.phases import LIVE, UNFINISHED, QueryPhase
from circinus.api.schemas.planning import planning_view
from circinus.deploy.methods import DEFAULT, parts_of
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.model.query import PlanningMethod
from tests.api.operator.fake_service import FakeService

SPEC = {"pipeline": "add", "data": {"examples": 10}, "slo": {"accuracy": 0.5, "latency_s": 1.0}}
OTHER = {**SPEC, "data": {"examples": 20}}
NEW = QueryObject(uid="u-1", generation=1, spec=SPEC, status={})


def read(service: FakeService) -> QueryBook:
    """Return what the service says now."""
    book = QueryBook(service=service)
    book.read()
    return book


def looked(
    seen: QueryObject, service: FakeService, at: float = 0.0
) -> tuple[QueryObject, list[str]]:
    """Look once and write the status, as the controller does; also give the reasons told."""
    status, events = follow(seen, read(service))
    document = status.document(seen.status, at=at)
    events += transition(seen.status, document)
    kept = {k: v for k, v in {**seen.status, **document}.items() if v is not None}
    return replace(seen, status=kept), [event.reason for event in events]


def condition(seen: QueryObject, kind: str) -> dict[str, Any]:
    return next(c for c in seen.status["conditions"] if c["type"] == kind)


def phase_of(service: FakeService, query_id: str) -> QueryPhase:
    return service.queries[query_id].phase


def serving(service: FakeService, seen: QueryObject) -> QueryObject:
    seen, _ = looked(seen, service)
    service.move(str(seen.status["queryId"]), QueryPhase.SERVING, plan_id="p-1")
    return looked(seen, service)[0]


def test_a_service_that_does_not_answer_is_an_error_and_nothing_was_done() -> None:
    service = FakeService()
    book = read(service)
    service.down = True
    with pytest.raises(Unavailable, match="no service answers"):
        follow(NEW, book)
    assert service.queries == {}


def test_a_refused_spec_is_told_once_and_tried_again() -> None:
    service = FakeService(refuses="must be registered")
    seen, told = looked(NEW, service)
    assert told == ["Refused"]
    assert seen.status["phase"] == "refused"
    assert condition(seen, "Ready")["status"] == "False"
    assert "pipeline must be registered, got 'add'" in condition(seen, "Planned")["message"]
    seen, told = looked(seen, service)
    assert told == []
    service.refuses = None  # somebody registered the pipeline
    seen, told = looked(seen, service)
    assert (told, seen.status["queryId"]) == (["Queued"], "q-1")


def test_a_refused_new_spec_leaves_the_old_query_serving() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    service.refuses = "must be registered"
    looked(replace(seen, generation=2, spec=OTHER), service)
    assert phase_of(service, "q-1") is QueryPhase.SERVING


def test_a_query_that_the_service_forgot_is_submitted_again() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    service.queries.clear()
    seen, _ = looked(seen, service)
    assert seen.status["phase"] == "queued"
    assert [q.idempotency_key for q in service.queries.values()] == ["u-1/1"]


def test_a_status_that_was_never_written_costs_no_second_query() -> None:
    service = FakeService()
    looked(NEW, service)
    looked(NEW, service)  # the controller was killed before it wrote the status
    assert list(service.queries) == ["q-1"]


def test_a_serving_query_is_told_with_plan_cost_and_objectives() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    assert seen.status["phase"] == "serving"
    # The plan costs 0.1 + 0.2, which is 0.30000000000000004: nobody wants to read that.
    assert (seen.status["planId"], seen.status["costUsdPerHour"]) == ("p-1", 0.3)
    assert seen.status["slo"] == "accuracy met, latency likely"
    assert condition(seen, "Ready")["status"] == "True"


def test_a_query_is_told_with_how_it_is_planned() -> None:
    service = FakeService()
    seen, _ = looked(NEW, service)
    assert seen.status["planning"] == parts_of(DEFAULT.planning)
    service.queries["q-1"] = service.queries["q-1"].model_copy(
        update={"planning": planning_view(PlanningMethod(sampling="stratified"))}
    )
    status, _ = follow(seen, read(service))
    told = status.document(seen.status, at=0.0)["planning"]
    # None takes a field out of an object of the cluster.
    assert told == {"method": None, "strategy": "multi_fidelity", "sampling": "stratified"}


def test_a_refused_spec_is_planned_in_no_way() -> None:
    seen, _ = looked(NEW, FakeService(refuses="must be registered"))
    assert "planning" not in seen.status


def test_what_is_done_between_two_readings_is_done_once() -> None:
    service = FakeService()
    book = read(service)
    follow(NEW, book)
    service.calls.clear()
    follow(NEW, book)  # before the service was asked again, and before the status came back
    assert service.calls == []
    follow(replace(NEW, generation=2), book)
    assert service.calls == ["submit u-1/2", "cancel q-1"]
    service.calls.clear()
    follow(replace(NEW, generation=2), book)
    assert service.calls == []


def test_a_query_that_ended_is_asked_for_by_itself_and_stays_the_objects_own() -> None:
    service = FakeService()
    seen, _ = looked(NEW, service)
    service.move("q-1", QueryPhase.INFEASIBLE)
    service.calls.clear()
    seen, told = looked(seen, service)
    assert told == ["Infeasible"]
    assert service.calls == ["list unfinished", "query q-1"]


def test_a_new_spec_is_submitted_though_the_service_was_away_when_it_came() -> None:
    service = FakeService()
    seen = replace(serving(service, NEW), generation=2, spec=OTHER)
    away = Status.unreachable(seen, "no service answers")
    # The status now names the query of the spec before, beside the present generation.
    seen = replace(seen, status={**seen.status, **away.document(seen.status, at=1.0)})
    seen, _ = looked(seen, service)
    assert (seen.status["queryId"], seen.status["servedBy"]) == ("q-2", "q-1")


def test_an_unchanged_query_gives_the_same_status_and_asks_little() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    service.calls.clear()
    again, told = looked(seen, service, at=99.0)
    assert (again, told) == (seen, [])  # time stamps too
    assert service.calls == ["list unfinished"]


def test_the_old_query_serves_until_the_new_one_does() -> None:
    service = FakeService()
    seen = replace(serving(service, NEW), generation=2, spec=OTHER)
    seen, _ = looked(seen, service)
    assert (seen.status["queryId"], seen.status["servedBy"]) == ("q-2", "q-1")
    assert "query q-1 of the spec before answers" in condition(seen, "Ready")["message"]
    service.move("q-2", QueryPhase.DEPLOYING, plan_id="p-2")
    seen, told = looked(seen, service)
    assert "Retired" not in told
    service.move("q-2", QueryPhase.SERVING)
    seen, told = looked(seen, service)
    assert told == ["Retired", "Serving"]
    assert "servedBy" not in seen.status
    assert phase_of(service, "q-1") is QueryPhase.RETIRED


def test_the_old_query_goes_first_where_there_is_no_room_for_both_and_that_is_told() -> None:
    service = FakeService()
    seen, _ = looked(replace(serving(service, NEW), generation=2, spec=OTHER), service)
    service.move("q-2", QueryPhase.WAITING)
    seen, told = looked(seen, service)
    assert phase_of(service, "q-1") is QueryPhase.SERVING  # perhaps it is about to be scheduled
    service.starved.add("q-2")
    seen, told = looked(seen, service)
    assert told == ["RetiredForCapacity"]
    assert phase_of(service, "q-1") is QueryPhase.RETIRED


def test_an_infeasible_new_spec_leaves_the_old_query_serving() -> None:
    service = FakeService()
    seen, _ = looked(replace(serving(service, NEW), generation=2, spec=OTHER), service)
    service.move("q-2", QueryPhase.INFEASIBLE)
    seen, told = looked(seen, service)
    assert told == ["Infeasible"]
    assert condition(seen, "Planned")["status"] == "False"
    assert seen.status["servedBy"] == "q-1"


def test_a_spec_that_changes_while_it_is_planned_stops_the_planning() -> None:
    service = FakeService()
    seen, _ = looked(NEW, service)
    seen, told = looked(replace(seen, generation=2, spec=OTHER), service)
    assert "Retired" in told
    assert phase_of(service, "q-1") is QueryPhase.CANCELLED


def test_another_object_is_left_alone() -> None:
    service = FakeService()
    looked(replace(NEW, uid="u-10"), service)  # its keys begin alike but for the slash
    release(NEW, read(service))
    assert phase_of(service, "q-1") is QueryPhase.QUEUED


def test_release_stops_every_query_and_names_what_still_runs() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    looked(replace(seen, generation=2, spec=OTHER), service)
    service.running.add("q-1")
    assert release(NEW, read(service)) == ("q-1",)
    service.running.clear()
    assert release(NEW, read(service)) == ()
    assert {q.phase for q in service.queries.values()} == {
        QueryPhase.RETIRED,
        QueryPhase.CANCELLED,
    }


def test_what_is_unreachable_keeps_what_was_known() -> None:
    seen = serving(FakeService(), NEW)
    status = Status.unreachable(seen, "no service answers")
    document = status.document(seen.status, at=5.0)
    assert (document["phase"], document["queryId"]) == ("serving", "q-1")
    ready = next(c for c in document["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ServiceUnavailable")
    assert ready["lastTransitionTime"] == "1970-01-01T00:00:05Z"


def test_a_phase_is_told_when_it_is_new() -> None:
    assert list(transition({"phase": "queued"}, {"phase": "queued"})) == []
    events = transition({}, {"phase": "failed", "message": "broken", "queryId": "q-1"})
    assert list(events) == [Event(warning=True, reason="Failed", message="broken")]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["look", "forget status", "new spec", "starve"]),
            st.sampled_from(sorted(QueryPhase)),
        ),
        max_size=25,
    )
)
def test_whatever_happens_no_spec_is_paid_twice_and_release_leaves_nothing(
    steps: list[str],
) -> None:
    service = FakeService()
    seen = NEW
    for step in steps:
        if step == "look":
            seen, _ = looked(seen, service)
        elif step == "forget status":
            seen = replace(seen, status={})
        elif step == "new spec":
            changed = {**SPEC, "data": {"examples": 10 + seen.generation}}
            seen = replace(seen, generation=seen.generation + 1, spec=changed)
        elif step == "starve":
            service.starved |= set(service.queries)
        else:
            for query_id, query in service.queries.items():
                if query.phase in UNFINISHED:
                    service.move(query_id, QueryPhase(step), plan_id="p-1")
    keys = [query.idempotency_key for query in service.queries.values()]
    assert len(keys) == len(set(keys))
    if service.queries:
        seen, _ = looked(seen, service)
        live = [q for q in service.queries.values() if q.phase in LIVE]
        assert len(live) <= 2  # the present one, and one that serves until it does
    assert release(seen, read(service)) == ()
    assert not [q for q in service.queries.values() if q.phase in UNFINISHED]
