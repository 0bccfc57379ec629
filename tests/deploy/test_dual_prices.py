from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.deploy.runtime.dual_prices import LearntPrices, basis_of, dual_prices
from circinus.deploy.runtime.learning import TierLatencies

QOS_S = 0.25


def learnt(speeds: dict[str, float], sizes: tuple[float, ...] = (1.0, 8.0)) -> TierLatencies:
    """A request of size 1 takes 40 ms at speed 1, others in proportion."""
    known = TierLatencies("cloud", None, 0.1)
    for name, speed in speeds.items():
        for size in sizes * 5:
            known.observe(("k", size), name, 0.04 * size / speed)
    return known


def filled(
    known: TierLatencies, *, small: int = 80, large: int = 20, left_s: float = QOS_S
) -> LearntPrices:
    found = LearntPrices(known)
    for size in [1.0] * small + [8.0] * large:
        found.note(("k", size), left_s)
    return found


def test_nothing_is_worked_out_of_a_type_that_never_answered() -> None:
    found = filled(learnt({"fast": 4.0}))
    assert not found.update({"fast": 2, "slow": 4})
    assert found.of("fast") is None


def test_nothing_is_worked_out_before_requests_came() -> None:
    found = LearntPrices(learnt({"fast": 4.0, "slow": 1.0}))
    assert not found.is_due(0.0)
    assert not found.update({"fast": 2, "slow": 4})


def test_requests_that_nobody_serves_in_time_say_nothing_of_prices() -> None:
    found = filled(learnt({"fast": 4.0, "slow": 1.0}), left_s=0.001)
    assert found.update({"fast": 2, "slow": 4})
    slow = found.of("slow")
    assert slow is not None
    assert (slow.kind, slow.price) == (1, 1.0)
    assert slow.coefficient == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("large", "price"),
    [
        # 1 small and 3 large of 4: 2 fast ones take 25 large a second, and so 8.3 small ones
        # come, which need a tenth of the slow ones: their time is worth nothing
        (240, 0.001),
        # 19 small of 20: slow ones take 100 small a second, the fast ones the rest, and more of
        # them: a second of a slow one does a quarter
        (4, 0.25),
    ],
)
def test_prices_are_the_duals_of_the_bound(large: int, price: float) -> None:
    found = filled(learnt({"fast": 4.0, "slow": 1.0}), large=large)
    assert found.update({"fast": 2, "slow": 4})
    fast, slow = found.of("fast"), found.of("slow")
    assert fast is not None
    assert slow is not None
    assert (fast.kind, fast.coefficient, fast.price) == (0, 1.0, 1.0)
    assert slow.kind == 1
    assert slow.coefficient == pytest.approx(0.25)
    assert slow.price == pytest.approx(price, rel=0.01)


def test_the_fastest_type_is_the_base_whatever_its_name_and_place() -> None:
    found = filled(learnt({"a": 1.0, "b": 4.0}))
    assert found.update({"a": 1, "b": 1})
    assert [getattr(found.of(name), "kind", None) for name in "ab"] == [1, 0]


def test_types_that_are_alike_but_for_noise_are_worth_the_same() -> None:
    found = filled(learnt({"replica 0": 1.0, "replica 1": 1.05, "replica 2": 0.95}))
    assert found.update({"replica 0": 1, "replica 1": 1, "replica 2": 1})
    assert {found.of(f"replica {i}") for i in range(3)} == {found.of("replica 0")}
    assert getattr(found.of("replica 0"), "price", None) == 1.0


def test_it_is_looked_at_once_a_second_and_what_did_not_change_is_not_worked_out_again() -> None:
    known = learnt({"fast": 4.0, "slow": 1.0})
    found = filled(known)
    assert [found.is_due(at) for at in (0.0, 0.9, 1.0, 1.1)] == [True, False, True, False]
    assert found.update({"fast": 2, "slow": 4})
    found.note(("k", 1.0), QOS_S)
    assert not found.update({"fast": 2, "slow": 4})
    assert found.update({"fast": 2, "slow": 3})


def test_when_one_type_is_left_nothing_is_said_of_it() -> None:
    found = filled(learnt({"fast": 4.0, "slow": 1.0}))
    assert found.update({"fast": 2, "slow": 4})
    assert found.update({"slow": 4})
    assert found.of("slow") is None
    assert not found.update({"slow": 4})


@given(
    speeds=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5),
    sizes=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6, unique=True),
    left_s=st.floats(1e-6, 1e4) | st.just(inf),
)
@settings(max_examples=50, deadline=None)
def test_worths_are_in_their_ranges_and_the_base_type_is_first(
    speeds: list[float], sizes: list[float], left_s: float
) -> None:
    known = TierLatencies("cloud", 0.9, 0.1)
    places = {f"type {i}": 1 + i for i in range(len(speeds))}
    for i, speed in enumerate(speeds):
        for size in sizes * 2:
            known.observe(("k", size), f"type {i}", size / speed)
    seen = basis_of([(("k", size), left_s) for size in sizes], places, known)
    assert seen is not None
    found = dual_prices(seen)
    assert found.keys() == places.keys()
    assert min(worth.kind for worth in found.values()) == 0
    for worth in found.values():
        assert 0 < worth.coefficient <= 1
        assert 0 <= worth.price < inf
        assert np.isfinite(worth.price)
