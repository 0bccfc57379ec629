from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.infrastructure import Tier
from pipelines.plan import DemandItem
from scheduler.packing import FreeShares, Packing
from scheduler.problem import PARTS, Slice

TIERS = (Tier(name="device", machines=1, dedicated=True), Tier(name="cloud", machines=2))


def cloud(*shares: float) -> tuple[DemandItem, ...]:
    return tuple(DemandItem("cloud", share) for share in shares)


def test_two_halves_do_not_hold_an_item_of_0_8() -> None:
    packing = Packing(TIERS)
    assert packing.occupy([Slice("cloud", 0, 0.5), Slice("cloud", 1, 0.5)])
    assert packing.place(cloud(0.8)) is None
    assert packing.missing(cloud(0.8)) == ((DemandItem("cloud", 0.8), PARTS // 2),)


def test_a_plan_that_does_not_fit_whole_takes_nothing() -> None:
    packing = Packing(TIERS)
    assert packing.place(cloud(0.8, 0.8, 0.8)) is None
    assert packing.place(cloud(1.0, 1.0)) is not None


def test_slices_that_cannot_all_be_occupied_take_nothing() -> None:
    packing = Packing(TIERS)
    assert not packing.occupy([Slice("cloud", 0, 0.6), Slice("cloud", 0, 0.6)])
    assert not packing.occupy([Slice("cloud", 0, 0.6), Slice("cloud", 2, 0.1)])
    assert not packing.occupy([Slice("cloud", 0, 0.6), Slice("moon", 0, 0.1)])
    assert packing.place(cloud(1.0, 1.0)) is not None


def test_an_item_goes_to_the_fullest_machine_that_holds_it() -> None:
    packing = Packing(TIERS)
    assert packing.occupy([Slice("cloud", 1, 0.6)])
    assert packing.place(cloud(0.4)) == (Slice("cloud", 1, 0.4),)
    assert packing.place(cloud(0.4)) == (Slice("cloud", 0, 0.4),)


def test_slices_come_in_the_order_of_the_demand() -> None:
    placed = Packing(TIERS).place(cloud(0.2, 0.9))
    assert placed == (Slice("cloud", 1, 0.2), Slice("cloud", 0, 0.9))


def test_every_query_finds_its_own_device_empty() -> None:
    packing = Packing(TIERS)
    demand = (DemandItem("device", 1.0),)
    assert packing.place(demand) == packing.place(demand) == (Slice("device", 0, 1.0),)


def test_a_tier_without_machines_holds_nothing() -> None:
    packing = Packing((Tier(name="cloud", machines=0),))
    assert packing.missing(cloud(0.05)) == ((DemandItem("cloud", 0.05), 0),)


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
