"""One query through a planning worker, in process; its heart beats without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.bootstrap.planning import PriorWork, plan_query, remembered
from circinus.api.control.planning_worker import plan_next
from circinus.api.control.pulse import ProgressReporter
from circinus.api.phases import QueryPhase
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.store.engine import connect
from circinus.api.store.failures import DatabaseAway
from circinus.api.store.journal import measurement_counts
from circinus.api.store.records import NewQuery, Search, to_document
from circinus.api.use_cases.parts import ServiceParts
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.result import PlanningPhase, PlanningProgress, Trial, TrialState
from tests.api.fakes import (
    INFRASTRUCTURE,
    PIPELINE,
    REFUSED,
    SPEC,
    TOLD,
    FakeCatalogue,
    plan,
    planning_parts,
)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[ServiceParts]:
    made = planning_parts(tmp_path)
    yield made
    made.store.close()


def submit(parts: ServiceParts, **spec: object) -> None:
    parts.store.submit(
        NewQuery(id="q-1", spec={**SPEC, **spec}, fingerprint="", idempotency_key=None, at=0.0)
    )


def test_an_empty_queue_is_no_work(parts: ServiceParts) -> None:
    assert plan_next(parts, "w") is False


def test_a_pipeline_that_breaks_fails_its_query_with_the_cause(parts: ServiceParts) -> None:
    def broken(count: int, seed: int) -> object:
        raise RuntimeError("no disk")

    pipeline: Pipeline = replace(PIPELINE, examples=broken)  # type: ignore[arg-type]  # never returns
    submit(parts)
    assert plan_next(replace(parts, catalogue=FakeCatalogue({"add": pipeline})), "w")
    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.FAILED
    assert record.message == "planning broke off: RuntimeError: no disk"


def test_a_pipeline_that_its_check_refuses_fails_its_query(parts: ServiceParts) -> None:
    submit(parts)
    refused = FakeCatalogue({"add": REFUSED}, {"add": "tests.api.fakes:REFUSED"})
    assert plan_next(replace(parts, catalogue=refused), "w")
    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.FAILED
    assert record.message == "operator add must be right, got 0."


def test_remarks_on_a_pipeline_are_shown_with_its_query(parts: ServiceParts) -> None:
    submit(parts, limits={"configurations": 2})
    told = FakeCatalogue({"add": TOLD}, {"add": "tests.api.fakes:TOLD"})
    assert plan_next(replace(parts, catalogue=told), "w")
    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING
    assert record.message.startswith("saw 3 inputs. ")
    assert record.planned is not None
    assert record.planned.seen_to_draw == ("add",)
    assert record.planned.remarks[0].startswith("add answered the same input differently")
    (plan,) = {each.plan.accuracy for each in parts.store.plans("q-1")}
    assert plan.low < plan.high


def test_a_feasible_query_waits_for_capacity_with_its_plans(parts: ServiceParts) -> None:
    submit(parts, limits={"configurations": 2})
    assert plan_next(parts, "w")
    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING, record.message
    assert record.planned is not None
    plans = [entry.plan for entry in parts.store.plans("q-1")]
    assert (record.planned.plans, record.planned.best) == (len(plans), plans[0])
    # Adding 1 is right on every input, adding 0 on none.
    assert {plan.configuration.of("add")["by"] for plan in plans} == {1}
    # What was measured is stored once, in the history.
    assert "configurations" not in (record.result or {})


@pytest.mark.parametrize("cold", [False, True])
def test_a_query_starts_from_earlier_ones_unless_it_is_cold(
    parts: ServiceParts, cold: bool
) -> None:
    submit(parts)
    assert plan_next(parts, "w")
    spec = {**SPEC, "data": {"examples": 12}, "cold": cold}
    parts.store.submit(
        NewQuery(id="q-2", spec=spec, fingerprint="2", idempotency_key=None, at=1.0)
    )
    told: list[int] = []

    def planned(*args: object, prior: PriorWork, **rest: object) -> object:
        told.append(len(prior.history))
        return plan_query(*args, prior=prior, **rest)  # type: ignore[arg-type]  # handed through

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circinus.api.control.planning_worker.plan_query", planned)
        assert plan_next(parts, "w")
    assert told == [0 if cold else 1]
    # What it measures is kept for others in any case.
    assert len(remembered(PIPELINE, parts.settings.database_url).earlier()) == 2


def test_a_heart_hears_of_cancelling(parts: ServiceParts) -> None:
    submit(parts)
    parts.store.queue.claim("w", at=0.0)
    heart = ProgressReporter(parts.store, parts.clock, "q-1", "w")
    heart.beat()
    assert not heart.cancelled()
    parts.store.request_cancel("q-1", at=1.0)
    heart.beat()
    assert heart.cancelled()


def test_a_heart_that_lost_its_query_says_stop(parts: ServiceParts) -> None:
    submit(parts)
    heart = ProgressReporter(parts.store, parts.clock, "q-1", "never claimed it")
    heart.beat()
    assert heart.cancelled()


def progress_of(*trials: Trial, measured: int = 0) -> PlanningProgress:
    return PlanningProgress(
        phase=PlanningPhase.SEARCHING,
        measured=measured,
        failed=0,
        inputs=0,
        spent_s=1.0,
        profiling_left_s=float("inf"),
        elapsed_s=1.0,
        time_left_s=None,
        best=plan(),
        plans=1,
        trials=trials,
    )


def trial(by: int, inputs: int) -> Trial:
    return Trial(
        configuration=Configuration((("add", "by", by),)),
        inputs=inputs,
        state=TrialState.FEASIBLE,
        plan=plan(by=by),
        spent_s=1.0,
        elapsed_s=1.0,
    )


def told_of(parts: ServiceParts, kind: EventKind) -> list[EventView]:
    return list(parts.store.events.of("q-1", kinds={kind}))


def test_what_a_heart_could_not_tell_it_tells_when_it_can(parts: ServiceParts) -> None:
    submit(parts)
    parts.store.queue.claim("w", at=0.0)
    heart = ProgressReporter(parts.store, parts.clock, "q-1", "w")
    heart.progress(progress_of(trial(0, 1), trial(1, 1)))

    def away(*args: object, **more: object) -> bool:
        raise DatabaseAway("the database cannot be reached now")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts.store.queue, "beat", away)
        for _ in range(2):
            with pytest.raises(DatabaseAway):
                heart.beat()
            heart.progress(progress_of(trial(1, 5), measured=2))
    assert heart.has_news
    heart.beat()
    assert not heart.has_news
    told = told_of(parts, EventKind.MEASURED)
    assert [(each.data["configuration"], each.data["inputs"]) for each in told] == [
        ({"add": {"by": 0}}, 1),
        ({"add": {"by": 1}}, 5),
    ]
    assert told[0].data["plan_id"] == plan(by=0).id
    [progress] = told_of(parts, EventKind.PROGRESS)
    assert progress.data["measured"] == 2


def test_a_heart_tells_every_trial_but_how_far_it_is_once_a_second(parts: ServiceParts) -> None:
    clock = ManualClock()
    submit(parts)
    parts.store.queue.claim("w", at=0.0)
    heart = ProgressReporter(parts.store, clock, "q-1", "w")
    for beat in range(9):
        heart.progress(progress_of(trial(0, beat), measured=beat))
        heart.beat()
        clock.sleep(0.25)
    assert len(told_of(parts, EventKind.MEASURED)) == 9
    progress = told_of(parts, EventKind.PROGRESS)
    assert [event.data["measured"] for event in progress] == [0, 4, 8]
    assert progress[0].data == {
        "phase": "searching",
        "measured": 0,
        "inputs": 0,
        "spent_s": 1.0,
        "profiling_left_s": None,
        "elapsed_s": 1.0,
        "time_left_s": None,
        "plans": 1,
        "best_plan_id": plan().id,
        "best_cost_usd_per_hour": 0.5,
    }
    [newest] = parts.store.events.trials("q-1")
    assert newest.inputs == 8


def test_planning_tells_each_configuration_and_where_it_ended(parts: ServiceParts) -> None:
    submit(parts)
    assert plan_next(parts, "w")
    told = told_of(parts, EventKind.PROGRESS)[-1]
    assert (told.data["phase"], told.data["measured"]) == ("finished", 2)
    trials = parts.store.events.trials("q-1")
    assert {tuple(each.configuration["add"].items()) for each in trials} == {
        (("by", 0),),
        (("by", 1),),
    }
    kinds = [event.kind for event in parts.store.events.of("q-1")]
    assert kinds.index(EventKind.MEASURED) > 1
    assert kinds[-1] == EventKind.PHASE  # its end is told last


def test_a_query_whose_first_measurement_hangs_shows_how_long_it_is_planned(
    parts: ServiceParts,
) -> None:
    clock = ManualClock()
    submit(parts, limits={"profiling_s": 7.0, "response_s": 9.0})
    seen: list[PlanningProgress | None] = []

    def hanging(*args: object, **rest: object) -> object:
        heart: ProgressReporter = args[4]  # type: ignore[assignment]  # what it is, see `plan_query`
        for seconds in (0.0, 1.5, 1.5, 60.0):
            clock.sleep(seconds)
            heart.beat()
            seen.append(parts.store.query("q-1").latest)
        return plan_query(*args, **rest)  # type: ignore[arg-type]  # handed through

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circinus.api.control.planning_worker.plan_query", hanging)
        patch.setattr("circinus.api.control.pulse.TICK_S", 1e3)  # beats as told only
        assert plan_next(replace(parts, clock=clock), "w")
    told = [each for each in seen if each is not None]
    assert [each.elapsed_s for each in told] == [0.0, 0.0, 3.0, 63.0]
    assert [each.time_left_s for each in told] == [9.0, 9.0, 6.0, 0.0]
    assert {(each.phase, each.measured, each.profiling_left_s) for each in told} == {
        (PlanningPhase.PROBING, 0, 7.0)
    }


def slowed(factor: float) -> Infrastructure:
    """Return the world with a cloud that is slower."""
    (cloud,) = INFRASTRUCTURE.tiers
    return replace(INFRASTRUCTURE, tiers=(replace(cloud, speed_factor=1 / factor),))


def search_on(parts: ServiceParts, world: Infrastructure, **spec: object) -> None:
    """Let q-1 serve, and have it searched on in a world."""
    submit(parts, **spec)
    assert plan_next(parts, "w")
    assert parts.store.move("q-1", QueryPhase.SERVING, at=1.0)
    search = Search(why="it is late", infrastructure=to_document(world), at=2.0)
    assert parts.store.search_on("q-1", search)


def test_a_search_that_breaks_leaves_its_query_and_says_why(parts: ServiceParts) -> None:
    def broken(count: int, seed: int) -> object:
        raise RuntimeError("no disk")

    search_on(parts, slowed(2.0))
    before = parts.store.query("q-1").result
    pipeline: Pipeline = replace(PIPELINE, examples=broken)  # type: ignore[arg-type]  # never returns
    assert plan_next(replace(parts, catalogue=FakeCatalogue({"add": pipeline})), "w")
    record = parts.store.query("q-1")
    assert (record.phase, record.result) == (QueryPhase.SERVING, before)
    assert record.search is not None
    assert record.search.ended == "planning broke off: RuntimeError: no disk"


def test_a_search_in_a_world_where_no_plan_would_do_says_so(parts: ServiceParts) -> None:
    search_on(parts, slowed(1e9))
    plans = parts.store.plans("q-1")
    assert plan_next(parts, "w")
    record = parts.store.query("q-1")
    assert (record.phase, parts.store.plans("q-1")) == (QueryPhase.SERVING, plans)
    assert record.search is not None
    assert "latency" in (record.search.ended or "")
    assert plan_next(parts, "w") is False


def test_a_search_finds_plans_for_the_world_as_observed_and_pays_for_nothing_twice(
    parts: ServiceParts,
) -> None:
    search_on(parts, slowed(1e3))
    (before,) = parts.store.plans("q-1")
    counts = measurement_counts(connect(parts.settings.database_url), "q-1")
    assert plan_next(parts, "w")
    record = parts.store.query("q-1")
    assert (record.phase, record.message) == (QueryPhase.WAITING, "replanned: it is late")
    assert record.planned is not None
    assert record.planned.best is not None
    latencies = [record.planned.best.latency_s.value, before.plan.latency_s.value]
    assert latencies[0] > 10 * latencies[1]  # adding takes microseconds
    assert measurement_counts(connect(parts.settings.database_url), "q-1") == counts


def test_a_search_counts_on_the_machines_that_there_are_and_on_the_device_as_observed(
    parts: ServiceParts,
) -> None:
    device = Tier(name="device", speed_factor=1e-9, dedicated=True)
    link = Link(between=("device", "cloud"), bandwidth_bytes_per_s=1e9)
    world = Infrastructure(name="two", tiers=(device, *INFRASTRUCTURE.tiers), links=(link,))
    parts.capacity.set_machines({"cloud": 3})
    told: list[tuple[Query, Infrastructure]] = []

    def planned(query: Query, where: Infrastructure, *args: object, **rest: object) -> object:
        told.append((query, where))
        return plan_query(query, where, *args, **rest)  # type: ignore[arg-type]  # handed through

    own = replace(parts, infrastructure=world)
    submit(own, device={"speed_factor": 0.5})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circinus.api.control.planning_worker.plan_query", planned)
        assert plan_next(own, "w")
        parts.store.search_on("q-1", Search(why="late", infrastructure=to_document(world), at=2.0))
        assert plan_next(own, "w")
    (first, _), (query, where) = told
    assert first.device is not None
    assert query.device is None
    assert where.tier("device").speed_factor == 1e-9
    assert where.tier("cloud").machines == 3


def test_a_query_that_is_retired_stops_its_search(parts: ServiceParts) -> None:
    search_on(parts, slowed(2.0))
    parts.store.queue.claim("w", at=3.0)
    heart = ProgressReporter(parts.store, parts.clock, "q-1", "w")
    heart.beat()
    assert not heart.cancelled()
    parts.store.move("q-1", QueryPhase.RETIRED, at=4.0)
    heart.beat()
    assert heart.cancelled()


def test_another_worker_goes_on_with_a_search_where_one_died(parts: ServiceParts) -> None:
    search_on(parts, slowed(1e3))

    def died(*args: object, **rest: object) -> object:
        plan_query(*args, **rest)  # type: ignore[arg-type]  # handed through
        parts.store.queue.crashed("w", at=3.0, limit=3, cause="killed")
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circinus.api.control.planning_worker.plan_query", died)
        with pytest.raises(SystemExit):
            plan_next(parts, "w")
    assert parts.store.query("q-1").phase is QueryPhase.SERVING
    assert plan_next(parts, "w-2")
    assert parts.store.query("q-1").message == "replanned: it is late"
    assert measurement_counts(connect(parts.settings.database_url), "q-1")[1] == 0
