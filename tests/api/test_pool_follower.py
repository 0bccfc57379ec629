"""Pools follow the requests: what is told, what is chosen anew, and what is changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from circinus.api.control.pool_follower import ENOUGH, PoolFollower
from circinus.api.schemas.events import EventKind
from circinus.api.schemas.pools import ChooseQueryPoolBody, PoolChoiceView, QueryPoolView
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.store import Store
from circinus.api.use_cases.query_pools import apply_pool, drop_pool
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import Unavailable
from circinus.scheduler.pool.monitor import TrafficChange
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import Loops, loops
from tests.api.test_pooling import UNLIKE, parts

PLAN = plan(share=1.0)
NOW, OTHER = {"cloud": {"small": 2}}, {"cloud": {"large": 1}}
CHANGE = TrafficChange(
    mix=True,
    rate=True,
    queue=False,
    requests=100,
    distance=0.25,
    rate_rps=20.0,
    was_rps=10.0,
    waiting=3,
)


@dataclass
class Chosen:
    """What would be chosen; every question is noted."""

    slices: dict[str, dict[str, int]] | None = field(default_factory=lambda: OTHER)
    error: Exception | None = None
    asked: list[ChooseQueryPoolBody] = field(default_factory=list)

    async def __call__(self, query_id: str, asked: ChooseQueryPoolBody) -> QueryPoolView:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        choice = PoolChoiceView(
            types=[],
            looked_at=1,
            tried=1,
            sure="",
            front=[],
            reason="the cheapest",
            left_out=[],
            prices=[],
        )
        return QueryPoolView(
            query_id=query_id,
            tier="cloud",
            share=1.0,
            slices=self.slices,
            seen=100,
            qos_ms=100.0,
            types=[],
            choice=choice,
        )


@dataclass
class PoolWorld:
    loops: Loops
    store: Store
    deployer: FakeDeployer
    clock: ManualClock
    chosen: Chosen = field(default_factory=Chosen)

    def __post_init__(self) -> None:
        self.follower = PoolFollower(
            parts=parts(self.loops), deployer=self.deployer, choose=self.chosen
        )

    def look(self, changes: int = 0, seen: int = 100, plan_id: str = PLAN.id) -> None:
        last = CHANGE if changes else None
        self.deployer.report(
            "q-1", plan_id=plan_id, changes=changes, known_requests=seen, last_change=last
        )
        asyncio.run(self.follower.tick())

    def apply(self, *, follows: bool) -> None:
        apply_pool(parts(self.loops), "q-1", NOW, follows=follows)

    def told(self) -> list[str]:
        kinds = {EventKind.POOL, EventKind.TRAFFIC}
        return [event.words for event in self.store.events.of("q-1", kinds=kinds)]


@pytest.fixture
def world(store: Store, deployer: FakeDeployer) -> PoolWorld:
    clock = ManualClock(1000.0)
    made = loops(store, deployer, clock, infrastructure=UNLIKE)
    add_planned(store, "q-1", PLAN)
    asyncio.run(made.tick())
    return PoolWorld(made, store, deployer, clock)


def test_without_a_pool_nothing_follows(world: PoolWorld) -> None:
    world.look(changes=3)
    assert (world.chosen.asked, world.told()) == ([], [])


def test_while_requests_stay_as_they_are_nothing_is_chosen(world: PoolWorld) -> None:
    world.apply(follows=True)
    for seen in (100, 500, 5000):
        world.look(seen=seen)
    assert world.chosen.asked == []


def test_a_change_is_told_and_a_pool_that_follows_is_changed(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look()
    world.look(changes=1)
    assert world.store.pools() == {"q-1": OTHER}
    assert world.store.query("q-1").pool_follows
    assert world.told()[-2:] == [
        "requests of q-1 have changed: their sizes (25% of them are others), 20/s instead of 10/s",
        "pool of q-1 is chosen: cloud/large=1, the cheapest",
    ]
    assert [asked.tier for asked in world.chosen.asked] == ["cloud"]


def test_a_pool_that_does_not_follow_is_left_and_the_other_is_told(world: PoolWorld) -> None:
    world.apply(follows=False)
    world.look()
    world.look(changes=1)
    assert world.store.pools() == {"q-1": NOW}
    assert world.told()[-1] == "pool of q-1 is proposed: cloud/large=1, the cheapest"


@pytest.mark.parametrize("best", [NOW, None])
def test_a_pool_that_is_the_best_or_has_no_better_is_kept(
    world: PoolWorld, best: dict[str, dict[str, int]] | None
) -> None:
    world.apply(follows=True)
    world.chosen.slices = best
    world.look()
    world.look(changes=1)
    assert world.store.pools() == {"q-1": NOW}
    assert world.told()[-1] == "pool of q-1 is kept: cloud/small=2, the cheapest"


def test_while_little_is_known_the_choice_is_looked_at_again(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look()
    counts = []
    for seen in (100, 200, 299, 300, 899, 900, 999, ENOUGH, 5000, 10_000):
        world.look(changes=1, seen=seen)
        counts.append(len(world.chosen.asked))
    assert counts == [1, 1, 1, 2, 2, 3, 3, 4, 4, 4]


def test_what_changed_before_a_restart_is_chosen_for_once(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look(changes=2, seen=4000)
    world.look(changes=2, seen=4100)
    assert len(world.chosen.asked) == 1
    assert not any("have changed" in words for words in world.told())  # that was told


def test_another_plan_begins_anew(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look(changes=2, seen=ENOUGH)
    world.look(changes=0, plan_id="p-other")
    assert len(world.chosen.asked) == 1


def test_what_failed_is_tried_again_later(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look()
    world.chosen.error = Unavailable("away", retry_after_s=1.0)
    world.look(changes=1, seen=2000)
    world.chosen.error = None
    world.look(changes=1, seen=2001)
    assert len(world.chosen.asked) == 1
    world.clock.seconds += 60.0
    world.look(changes=1, seen=2002)
    assert world.store.pools() == {"q-1": OTHER}


def test_while_the_database_is_away_nothing_is_forgotten(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look()
    world.chosen.error = DatabaseFailed("away")
    with pytest.raises(DatabaseFailed):
        world.look(changes=1, seen=2000)
    world.chosen.error = None
    world.clock.seconds += 60.0
    world.look(changes=1, seen=2000)
    assert world.store.pools() == {"q-1": OTHER}


def test_what_somebody_changed_meanwhile_stays(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look()
    chosen = world.chosen

    async def meanwhile(query_id: str, asked: ChooseQueryPoolBody) -> QueryPoolView:
        drop_pool(parts(world.loops), query_id)
        return await chosen(query_id, asked)

    world.follower.choose = meanwhile
    world.look(changes=1)
    assert world.store.pools() == {}


def test_a_query_whose_room_is_taken_keeps_its_pool(world: PoolWorld) -> None:
    world.apply(follows=True)
    world.look()
    world.chosen.slices = {"cloud": {"large": 9}}
    world.look(changes=1)
    assert world.store.pools() == {"q-1": NOW}
    assert replace(world.follower._followed["q-1"], not_before=0.0).by == 0
