"""Other objectives, other data and drift, from HTTP and the watch to what the store holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.bootstrap.planning import remembered
from circinus.api.control.planning_worker import plan_next
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from circinus.api.schemas.deployments import ExampleReference
from circinus.api.schemas.events import EventKind
from circinus.api.schemas.explanation import ReplanData
from circinus.api.store.engine import connect
from circinus.api.store.journal import measurement_counts
from circinus.api.store.records import NewQuery, Replan, from_document, plan_documents
from circinus.api.use_cases.knowledge import Knowledge
from circinus.deploy.runtime.report import JUDGED_ANSWERS, DeploymentReport, LatestAnswers
from circinus.pipelines.model.infrastructure import Infrastructure
from tests.api.fakes import PIPELINE, SPEC, FakeDeployer, answers, parts, planning_parts


class World:
    """A service without loops, and a planning worker beside it."""

    def __init__(self, folder: Path) -> None:
        self.parts = parts(folder, {})
        self.planning = replace(planning_parts(folder), store=self.parts.store)
        self.url = f"sqlite:///{folder / 'store.sqlite3'}"
        self.deployer = FakeDeployer()
        self.service: Service = Service(self.parts, self.deployer)
        self.client = TestClient(application_of(self.service), base_url="http://127.0.0.1")

    def submit(self) -> None:
        self.parts.store.submit(
            NewQuery(id="q-1", spec=SPEC, fingerprint="", idempotency_key=None, at=0.0)
        )

    def plan(self) -> None:
        assert plan_next(self.planning, "w")

    def serve(self) -> str:
        assert self.parts.store.move("q-1", QueryPhase.SERVING, at=1.0)
        return self.parts.store.plans("q-1")[0].id

    def drift(self, latency_s: float, *, score: float = 1.0, seed: int | None = None) -> None:
        """Let the first plan serve and answer so, and the watch look once."""
        plan_id = self.serve()
        windows = self.service.requests.windows
        for index in range(40):
            if seed is not None:
                windows.note("q-1", plan_id, _example(index, 40, seed), score)
        before = self.deployer.reported.get("q-1")
        self.answered(plan_id, *[latency_s] * 40, before=0 if before is None else before.answered)
        asyncio.run(self.service.look_for_drift())
        assert (
            windows.observed("q-1", self.deployer.reported["q-1"]) is None
        )  # judged anew by new ones

    def events(self) -> list[str]:
        """Return the kinds of the latest events."""
        items = self.client.get("/v1/events", params={"limit": 50}).json()["items"]
        return [item["kind"] for item in items]

    def answered(self, plan_id: str, *latencies_s: float, before: int = 0) -> DeploymentReport:
        """Let the plan have answered so many requests, and others before."""
        count = before + len(latencies_s)
        return self.deployer.report(
            "q-1", plan_id=plan_id, answered=count, answers=answers(*latencies_s)
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.submit()
    yield made
    made.parts.store.close()


def _example(index: int, count: int, seed: int) -> ExampleReference:
    return ExampleReference(index=index, count=count, seed=seed)


def _share(world: World) -> float:
    """Of the machine, that the cheapest plan asks for."""
    plans = world.client.get("/v1/queries/q-1/plans").json()["items"]
    return float(plans[0]["demand"][0]["share"])


def test_a_plan_that_has_just_become_late_is_replaced(world: World) -> None:
    """Of 200 answers 180 are from before the change: their mean is within the SLO."""
    world.plan()
    bound_s = world.client.get("/v1/queries/q-1").json()["request"]["slo"]["latency_s"]
    seconds = [0.1 * bound_s] * 180 + [2.5 * bound_s, 2.6 * bound_s] * 10
    report = world.answered(world.serve(), *seconds)
    every = world.service.requests.windows.observed("q-1", report)
    assert every is not None
    assert every.latency_s.mean() < bound_s
    asyncio.run(world.service.look_for_drift())
    assert EventKind.DRIFTED.value in world.events()


@pytest.mark.parametrize("per_s", [1, 4, 30])
def test_what_has_changed_for_seconds_is_recent_at_any_rate(world: World, per_s: int) -> None:
    world.plan()
    even = answers(*[0.1] * 200)
    rows = tuple((at / per_s, *row[1:]) for at, row in enumerate(even.rows))
    paced = replace(even, rows=rows, at=200 / per_s)
    report = world.deployer.report("q-1", plan_id=world.serve(), answered=200, answers=paced)
    recent = world.service.requests.windows.recent("q-1", report)
    assert recent is not None
    assert len(recent.latency_s) == max(20, 5 * per_s + 1)


def test_requests_that_only_wait_have_not_changed_suddenly(world: World) -> None:
    world.plan()
    bound_s = world.client.get("/v1/queries/q-1").json()["request"]["slo"]["latency_s"]
    busy_s = 0.1 * bound_s
    rows = [(float(at), busy_s, busy_s, 0.0, 0.0, busy_s) for at in range(180)]
    rows += [(float(at), 2.5 * bound_s, 2.5 * bound_s, 0.0, 0.0, busy_s) for at in range(180, 200)]
    queued = LatestAnswers(at=200.0, tiers=("cloud",), rows=tuple(rows))
    world.deployer.report("q-1", plan_id=world.serve(), answered=200, answers=queued)
    asyncio.run(world.service.look_for_drift())
    assert EventKind.DRIFTED.value not in world.events()


def test_a_disturbance_of_less_than_five_seconds_is_not_judged_alone(world: World) -> None:
    world.plan()
    late = replace(answers(*[9.0] * 200), at=0.0)
    brief = replace(late, rows=tuple((at / 100 - 2, *row[1:]) for at, row in enumerate(late.rows)))
    report = world.deployer.report("q-1", plan_id=world.serve(), answered=200, answers=brief)
    assert world.service.requests.windows.recent("q-1", report) is None


def test_twenty_failures_at_once_leave_a_plan_in_force(world: World) -> None:
    world.plan()
    plan_id, windows = world.serve(), world.service.requests.windows
    for index in range(200):
        windows.note("q-1", plan_id, _example(index, 200, 0), float(index < 180))
    world.answered(plan_id, *[0.001] * 200)
    asyncio.run(world.service.look_for_drift())
    assert EventKind.DRIFTED.value not in world.events()


def test_a_query_that_is_being_planned_is_not_replanned(world: World) -> None:
    response = world.client.post("/v1/queries/q-1:replan", json={"latency": "2x"})
    assert response.status_code == 409, response.text
    assert "must be planned and not retired" in response.text


def test_a_query_that_does_not_exist_is_not_replanned(world: World) -> None:
    assert world.client.post("/v1/queries/q-9:replan", json={}).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"latency": "soon"}, "latency"),
        ({"accuracy": "3"}, "accuracy"),
        ({"data": {"examples": 0}}, "data.examples"),
        ({"data": {"examples": 20_000}}, "data.examples"),
        ({"weight": "2x"}, "weight"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    world: World, body: dict[str, object], field: str
) -> None:
    world.plan()
    before = world.parts.store.query("q-1")
    response = world.client.post("/v1/queries/q-1:replan", json=body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == field
    assert world.parts.store.query("q-1") == before


def test_other_objectives_that_a_measured_plan_meets_are_planned_at_once(world: World) -> None:
    world.plan()
    rows = measurement_counts(connect(world.url), "q-1")
    before = world.client.get("/v1/queries/q-1").json()["progress"]
    response = world.client.post("/v1/queries/q-1:replan", json={"latency": "0.5x"})
    assert response.status_code == 200, response.text
    record = world.parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING  # for capacity, with plans
    assert len(record.replans) == 1
    assert record.spec["slo"] == {"accuracy": 0.5, "latency_s": 0.5}
    assert world.parts.store.plans("q-1")
    assert measurement_counts(connect(world.url), "q-1") == rows
    assert response.json()["message"].startswith("replanned: its objectives changed")
    progress = response.json()["progress"]  # what its measurements cost is still what they cost
    assert (progress["spent_s"], progress["bill"]) == (before["spent_s"], before["bill"])
    assert progress["spent_s"] > 0


def test_objectives_that_nothing_measured_meets_are_planned_anew_without_paying_twice(
    world: World,
) -> None:
    world.plan()
    world.client.post("/v1/queries/q-1:replan", json={"latency": "1e-6"})
    assert world.parts.store.query("q-1").phase is QueryPhase.QUEUED
    world.plan()
    record = world.parts.store.query("q-1")
    assert record.phase is QueryPhase.INFEASIBLE, record.message
    assert not record.message.startswith("Planned anew")
    assert measurement_counts(connect(world.url), "q-1")[1] == 0
    # And back again: what was measured still holds.
    world.client.post("/v1/queries/q-1:replan", json={"latency": "1"})
    assert world.parts.store.query("q-1").phase is QueryPhase.WAITING


def test_other_data_is_measured_anew_with_the_old_as_history(world: World) -> None:
    world.plan()
    body = {"data": {"examples": 12, "seed": 5}}
    world.client.post("/v1/queries/q-1:replan", json=body)
    assert measurement_counts(connect(world.url), "q-1") == (0, 0)
    world.plan()
    record = world.parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING, record.message
    assert record.spec["data"] == {"examples": 12, "seed": 5}
    kept = remembered(PIPELINE, world.url).earlier()
    assert len({one.query for one in kept}) == 2  # the same query on two sets of data


def test_a_plan_that_keeps_its_promise_is_left_alone(world: World) -> None:
    world.plan()
    plan_id = world.serve()
    for index in range(40):
        example = _example(index, 40, 0)
        world.service.requests.windows.note("q-1", plan_id, example, 1.0)
    world.answered(plan_id, *[1e-6] * 40)
    asyncio.run(world.service.look_for_drift())
    assert world.parts.store.query("q-1").replans == ()


def test_a_late_plan_is_replaced_by_what_measurements_say_of_the_slower_world(
    world: World,
) -> None:
    world.plan()
    world.serve()
    before = _share(world)
    world.drift(1.5)
    record = world.parts.store.query("q-1")
    # At its share a request takes 1.5 s, 1 s is allowed: more of the machine will do.
    assert len(record.replans) == 1
    told = {EventKind.DRIFTED, EventKind.REPLANNED}
    drifted, replanned = world.parts.store.events.of("q-1", kinds=told)
    assert (drifted.data["latency"], drifted.data["accuracy"]) == (True, False)
    assert replanned.data["why"] == drifted.data["why"] == record.replans[0].message[11:]
    assert record.phase is QueryPhase.WAITING
    assert record.message.startswith("replanned: latency is 1.50 s")
    assert _share(world) > before


def test_a_plan_that_no_measured_one_could_replace_serves_on_while_it_is_searched_on(
    world: World,
) -> None:
    world.plan()
    world.drift(1e3)
    record = world.parts.store.query("q-1")
    assert (record.replans, record.phase) == ((), QueryPhase.SERVING)
    assert record.searching is not None
    assert record.searching.why.startswith("latency is 1000 s")
    # Adding takes less than 0.1 s at full speed, seen were 1000 s at a share of 0.05 or more.
    (cloud,) = from_document(Infrastructure, record.searching.infrastructure).tiers
    assert cloud.speed_factor < 0.1
    shown = world.client.get("/v1/queries/q-1").json()
    assert (shown["phase"], shown["search"]["ended"]) == ("serving", None)
    assert shown["search"]["why"] == record.searching.why
    assert shown["updated_at"] == shown["search"]["since"]


def test_while_it_is_searched_on_nothing_more_is_asked(world: World) -> None:
    world.plan()
    world.drift(1e3)
    before = world.parts.store.query("q-1")
    world.drift(1.5)  # more of the machine would do, but the search will see to that
    assert world.parts.store.query("q-1") == before


def test_a_search_in_vain_is_told_and_not_repeated_until_the_world_gets_better(
    world: World,
) -> None:
    world.plan()
    world.drift(1e6)
    world.plan()
    ended = world.parts.store.query("q-1").search
    assert ended is not None
    shown = world.client.get("/v1/queries/q-1").json()
    assert (shown["phase"], shown["search"]["ended"]) == ("serving", ended.ended)
    for latency_s in (1e6, 2e6):
        world.drift(latency_s)
        assert world.parts.store.query("q-1").search == ended
    world.drift(1e5)
    assert world.parts.store.query("q-1").searching is not None


def test_a_search_is_cancelled_while_its_query_serves_on(world: World) -> None:
    world.plan()
    world.drift(1e6)
    response = world.client.post("/v1/queries/q-1:cancel")
    assert response.status_code == 200, response.text
    shown = response.json()
    assert (shown["phase"], shown["search"]["ended"]) == ("serving", "cancelled")
    assert plan_next(world.planning, "w") is False


def test_other_objectives_end_a_search(world: World) -> None:
    world.plan()
    world.drift(1e6)
    world.client.post("/v1/queries/q-1:replan", json={"latency": "0.5x"})
    assert world.parts.store.query("q-1").search is None


def test_known_outputs_that_are_wrong_end_a_search(world: World) -> None:
    world.plan()
    world.drift(1e6)
    world.drift(1e-6, score=0.0, seed=7)
    record = world.parts.store.query("q-1")
    assert (record.phase, record.search) == (QueryPhase.QUEUED, None)


def test_known_outputs_that_are_wrong_send_the_query_back_to_planning_on_their_data(
    world: World,
) -> None:
    world.plan()
    world.drift(1e-6, score=0.0, seed=7)
    record = world.parts.store.query("q-1")
    assert record.phase is QueryPhase.QUEUED
    assert record.spec["data"] == {"examples": 40, "seed": 7}
    assert record.message.startswith("replanned: accuracy is 0, planned was 1")
    world.plan()
    assert world.parts.store.query("q-1").phase is QueryPhase.WAITING


def test_one_example_that_fails_again_and_again_is_no_drift(world: World) -> None:
    world.plan()
    plan_id = world.serve()
    for _ in range(40):
        example = _example(3, 30, 7)
        world.service.requests.windows.note("q-1", plan_id, example, 0.0)
    recent = world.answered(plan_id, *[1e-6] * 40)
    asyncio.run(world.service.look_for_drift())
    assert world.parts.store.query("q-1").phase is QueryPhase.SERVING
    seen = world.service.requests.windows.observed("q-1", recent)
    assert seen is not None
    assert seen.scores.tolist() == [0.0]


def _scores(world: World, recent: DeploymentReport) -> list[float]:
    seen = world.service.requests.windows.observed("q-1", recent)
    assert seen is not None
    scores: list[float] = seen.scores.tolist()
    return scores


def test_of_each_of_the_latest_examples_the_latest_answer_counts(world: World) -> None:
    windows, old, new = world.service.requests.windows, 0, 1
    recent = world.answered("p", 1.0)
    for seed, score in ((old, 0.0), (new, 0.5), (old, 1.0)):
        windows.note("q-1", "p", _example(0, 500, seed), score)
    assert _scores(world, recent) == [0.5, 1.0]
    assert windows.data("q-1", "p") == ReplanData(examples=500, seed=old)
    for index in range(JUDGED_ANSWERS - 1):
        windows.note("q-1", "p", _example(index, 500, new), 0.25)
    assert _scores(world, recent) == [1.0] + [0.25] * (JUDGED_ANSWERS - 1)
    assert windows.data("q-1", "p") == ReplanData(examples=500, seed=new)


def test_answers_of_another_plan_are_not_mixed_in(world: World) -> None:
    windows = world.service.requests.windows
    for index in range(5):
        windows.note("q-1", "p-old", _example(index, 5, 0), 0.0)
    seen = windows.observed("q-1", world.answered("p-new", 2.0))
    assert seen is not None
    assert (seen.latency_s.tolist(), seen.scores.tolist()) == ([2.0], [])


def test_a_late_answer_of_the_plan_before_leaves_the_scores_of_the_new_one(world: World) -> None:
    windows = world.service.requests.windows
    windows.note("q-1", "p-new", _example(0, 5, 0), 1.0)
    windows.note("q-1", "p-old", _example(1, 5, 0), 0.0)
    assert windows.scores("q-1", "p-new").tolist() == [1.0]


def test_a_plan_that_only_fails_after_it_was_judged_is_judged_again(world: World) -> None:
    windows, report = world.service.requests.windows, world.answered("p", 1.0)
    windows.forget("q-1", report)
    windows.note("q-1", "p", _example(0, 5, 0), 0.0)
    observed = windows.observed("q-1", report)
    assert observed is not None
    assert (observed.latency_s.tolist(), observed.scores.tolist()) == ([], [0.0])


def test_a_query_is_planned_again_on_the_data_of_most_of_the_latest_examples(world: World) -> None:
    windows = world.service.requests.windows
    for index in range(3):
        windows.note("q-1", "p", _example(index, 5, 1), 0.0)
    windows.note("q-1", "p", _example(0, 5, 2), 1.0)
    assert windows.data("q-1", "p") == ReplanData(examples=5, seed=1)


def test_scores_are_judged_on_where_only_latency_drifted(world: World) -> None:
    world.plan()
    plan_id = world.serve()
    windows = world.service.requests.windows
    for index in range(40):
        windows.note("q-1", plan_id, _example(index, 40, 0), 1.0)
    report = world.answered(plan_id, *[1.5] * 40)
    asyncio.run(world.service.look_for_drift())
    observed = windows.observed("q-1", report)
    assert observed is not None
    assert (len(observed.latency_s), len(observed.scores)) == (0, 40)


def test_answers_that_were_judged_are_not_judged_again(world: World) -> None:
    windows = world.service.requests.windows
    windows.forget("q-1", world.answered("p", 1.0, 1.0))
    assert windows.observed("q-1", world.answered("p", 1.0, 1.0)) is None
    seen = windows.observed("q-1", world.answered("p", 1.0, 1.0, 3.0))
    assert seen is not None
    assert seen.latency_s.tolist() == [3.0]
    windows.keep(())
    seen = windows.observed("q-1", world.answered("p", 1.0, 1.0, 3.0))
    assert seen is not None
    assert seen.latency_s.tolist() == [1.0, 1.0, 3.0]


def test_what_was_seen_to_draw_is_known_to_what_follows_from_measurements(world: World) -> None:
    world.plan()
    store = world.parts.store
    record = store.query("q-1")
    assert record.result is not None
    assert not Knowledge.of(world.parts, record).known.graph.draws
    replan = Replan(
        query_id="q-1",
        spec=record.spec,
        why="as a search tells that noticed it",
        at=1.0,
        result={**record.result, "seen_to_draw": ["add"]},
        plans=plan_documents([stored.plan for stored in store.plans("q-1")]),
    )
    assert store.replan(replan)
    assert Knowledge.of(world.parts, store.query("q-1")).known.graph.draws
    world.client.post("/v1/queries/q-1:replan", json={"latency": "0.5x"})
    record = store.query("q-1")
    assert record.spec["slo"] == {"accuracy": 0.5, "latency_s": 0.5}
    assert record.planned is not None  # plans were found: the next question has to know, too
    assert record.planned.seen_to_draw == ("add",)
    (plan, *_) = (stored.plan for stored in store.plans("q-1"))
    assert plan.accuracy.low < plan.accuracy.high  # ten draws of one each are not all there are
