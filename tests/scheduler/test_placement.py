from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.placement import FreeShares, Placed, Placement, empty, fit
from circinus.scheduler.problem import PARTS, Slice
from tests.scheduler.problems import occupied

TIERS = (Tier(name="device", machines=1, dedicated=True), Tier(name="cloud", machines=2))


def cloud(*shares: float) -> tuple[DemandItem, ...]:
    return tuple(DemandItem("cloud", share) for share in shares)


def items(*shares: float) -> tuple[tuple[int, int], ...]:
    return tuple((0, round(share * PARTS)) for share in shares)


def test_two_halves_do_not_hold_an_item_of_0_8() -> None:
    room = occupied(TIERS, Slice("cloud", 0, 0.5), Slice("cloud", 1, 0.5))
    assert fit(cloud(0.8), room) == ({}, [(DemandItem("cloud", 0.8), PARTS // 2)])


def test_a_plan_that_does_not_fit_whole_takes_nothing() -> None:
    placement = Placement[str]([2], {})
    assert not placement.place("a", 0, items(0.8, 0.8, 0.8))
    assert placement.place("a", 0, items(1.0, 1.0))


def test_machines_that_cannot_all_be_occupied_take_nothing() -> None:
    placement = Placement[str]([2], {})
    assert not placement.occupy("a", Placed(0, items(0.6, 0.6), (0, 0)))
    assert not placement.occupy("a", Placed(0, items(0.6, 0.1), (0, 2)))
    assert placement.place("a", 0, items(1.0, 1.0))


def test_looking_for_room_takes_nothing() -> None:
    room = empty(TIERS)
    assert fit(cloud(0.8, 0.8, 0.8), room).missing
    assert not fit(cloud(1.0, 1.0), room).missing


def test_a_tier_that_is_not_there_holds_nothing() -> None:
    demand = DemandItem("moon", 0.1)
    assert fit((demand,), empty(TIERS)).missing == [(demand, 0)]


def test_an_item_goes_to_the_fullest_machine_that_holds_it() -> None:
    room = occupied(TIERS, Slice("cloud", 1, 0.6))
    assert fit(cloud(0.4), room).slices == {0: Slice("cloud", 1, 0.4)}
    room["cloud"].take(1, PARTS * 4 // 10)
    assert fit(cloud(0.4), room).slices == {0: Slice("cloud", 0, 0.4)}


def test_slices_are_told_by_the_order_of_the_demand() -> None:
    found = fit(cloud(0.2, 0.9), empty(TIERS)).slices
    assert found == {0: Slice("cloud", 1, 0.2), 1: Slice("cloud", 0, 0.9)}


def test_every_query_finds_its_own_device_empty() -> None:
    placement = Placement[str]([2], {})
    placement.place("a", 0, items(1.0))
    room, demand = placement.room(TIERS), (DemandItem("device", 1.0),)
    assert fit(demand, room) == fit(demand, room) == ({0: Slice("device", 0, 1.0)}, [])


def test_a_tier_without_machines_holds_nothing() -> None:
    room = empty((Tier(name="cloud", machines=0),))
    assert fit(cloud(0.05), room).missing == [(DemandItem("cloud", 0.05), 0)]


@given(
    machines=st.integers(1, 4),
    sizes=st.lists(st.integers(1, PARTS), max_size=20),
)
def test_the_best_machine_is_the_fullest_one_with_room(machines: int, sizes: list[int]) -> None:
    free = FreeShares(machines)
    left = [PARTS] * machines  # oracle: look at every machine
    for size in sizes:
        best = min((room, i) for i, room in enumerate([*left, PARTS + size]) if room >= size)[1]
        found = free.best(size)
        assert found == (best if best < machines else None)
        if found is not None:
            free.take(found, size)
            left[found] -= size
        assert free.largest == max(left)
        assert [free.on(i) for i in range(-1, machines + 1)] == [0, *left, 0]
