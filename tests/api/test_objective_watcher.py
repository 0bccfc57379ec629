"""Changes between met and missed are told once, and so is an overload that lasts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import numpy as np
import pytest

from circinus.api.control.objective_watcher import ObjectiveWatcher
from circinus.api.schemas.deployments import ExampleReference
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.store.store import Store
from circinus.api.use_cases.objectives import ObservedState
from circinus.api.use_cases.requests import RequestWindows
from circinus.api.use_cases.views import objectives_view
from circinus.deploy.runtime.report import DeploymentReport, QueueFigures
from circinus.pipelines.clock import ManualClock
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import loops
from tests.api.test_objectives import answers, seen

BUSY = QueueFigures(waiting=15, places=1, workers=1)


@dataclass
class Watched:
    watcher: ObjectiveWatcher
    deployer: FakeDeployer
    store: Store
    clock: ManualClock

    def look(self, told: DeploymentReport | None = None) -> None:
        if told is not None:
            plan_id = self.deployer.desired["q-1"].plan.id
            self.deployer.reported = {"q-1": replace(told, plan_id=plan_id)}
        asyncio.run(self.watcher.tick())
        self.clock.sleep(1.0)

    def told(self, kind: EventKind) -> list[EventView]:
        return list(self.store.events.of("q-1", kinds={kind}))


@pytest.fixture
def watched(store: Store, deployer: FakeDeployer, clock: ManualClock) -> Watched:
    add_planned(store, "q-1", plan(share=0.5))
    both = loops(store, deployer, clock)
    asyncio.run(both.tick())
    watcher = ObjectiveWatcher(
        parts=both.rescheduler.parts,
        deployer=deployer,
        target=lambda: both.rescheduler.target,
        windows=RequestWindows(),
        now={},
    )
    return Watched(watcher, deployer, store, clock)


def test_requests_of_a_plan_that_is_not_wanted_any_more_are_not_judged(watched: Watched) -> None:
    watched.deployer.reported = {"q-1": seen(answers([9.0] * 80)), "q-9": seen(answers([]))}
    watched.look()
    assert watched.watcher.now == {}


def test_before_there_is_a_schedule_nothing_is_judged(watched: Watched) -> None:
    watched.watcher.target = lambda: None
    watched.look(seen(answers([9.0] * 80)))
    assert watched.watcher.now == {}


def test_too_few_requests_tell_nothing(watched: Watched) -> None:
    watched.look(seen(answers([0.1])))
    assert watched.watcher.now["q-1"].state is ObservedState.UNSURE
    assert watched.told(EventKind.OBJECTIVES) == []


def test_met_and_missed_are_told_when_they_change(watched: Watched) -> None:
    good, bad = np.linspace(0.1, 0.2, 80), np.linspace(2.8, 3.0, 80)
    for took in (good, good, bad[:3], good, bad, bad):
        watched.look(seen(answers(took)))
    first, last = watched.told(EventKind.OBJECTIVES)
    assert (first.data["state"], last.data["state"]) == ("met", "missed")
    assert last.data["states"] == {"accuracy": "unsure", "latency": "missed"}
    assert last.words.startswith("requests of q-1 miss its objectives: accuracy unsure")
    assert "latency missed, 2.90 s" in last.words


def test_known_outputs_judge_accuracy(watched: Watched) -> None:
    plan_id = watched.deployer.desired["q-1"].plan.id
    for index in range(40):
        example = ExampleReference(index=index)
        watched.watcher.windows.note("q-1", plan_id, example, 0.0)
    watched.look(seen(answers(np.linspace(0.1, 0.2, 80))))
    (told,) = watched.told(EventKind.OBJECTIVES)
    assert told.data["states"] == {"accuracy": "missed", "latency": "met"}


def test_an_overload_that_lasts_is_told_when_it_began_and_when_it_ended(watched: Watched) -> None:
    for _ in range(3):
        watched.look(seen(answers([]), cloud=BUSY))
    assert watched.told(EventKind.OVERLOAD) == []
    watched.look(seen(answers([]), turned_away=7, cloud=BUSY))
    for _ in range(11):
        watched.look(seen(answers([])))
    began, ended = watched.told(EventKind.OVERLOAD)
    assert (began.data["state"], ended.data["state"]) == ("began", "ended")
    assert (began.data["waiting"], began.data["turned_away"]) == (15, 7)
    assert began.data["planned_per_s"] == pytest.approx(3.5)
    assert began.words == (
        "overload of q-1 began: 15 requests wait for tier cloud, whose instances take 1 at once"
    )


def test_who_is_served_no_more_is_forgotten(watched: Watched) -> None:
    watched.look(seen(answers(np.linspace(2.8, 3.0, 80))))
    watched.deployer.reported = {}
    watched.look()
    assert watched.watcher.now == {}
    watched.look(seen(answers(np.linspace(2.8, 3.0, 80))))
    assert len(watched.told(EventKind.OBJECTIVES)) == 2


def test_a_view_shows_what_was_found(watched: Watched) -> None:
    watched.look(seen(answers(np.linspace(2.8, 3.0, 80)), per_s=2.0, cloud=BUSY))
    view = objectives_view("q-1", watched.watcher.now["q-1"])
    assert (view.state, view.rate_per_s, view.planned_per_s) == ("missed", 2.0, 3.5)
    assert (view.requests, view.waiting, view.replicas) == (80, 15, {"cloud": 1})
    assert view.scaled_tier == "cloud"
    latency = next(each for each in view.objectives if each.name == "latency")
    assert (latency.state, latency.requests, latency.span_s) == ("missed", 80, 60.0)
    assert latency.value == pytest.approx(2.9)
    assert next(e for e in view.objectives if e.name == "accuracy").value is None
