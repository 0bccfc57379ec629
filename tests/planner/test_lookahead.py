import numpy as np
import pytest

from planner.lookahead import log_index, log_shown, targets


def _one(value: float) -> np.ndarray:
    return np.array([value])


def test_what_is_known_already_is_shown_or_not() -> None:
    still = _one(0.01)
    assert log_shown(_one(0.5), still, still, 2.0)[0] == pytest.approx(0.0)
    assert log_shown(_one(0.1), still, still, 2.0)[0] < -1e6


def test_the_chance_to_be_shown_is_that_of_a_normal_step() -> None:
    rng = np.random.default_rng(0)
    ahead, now, then, z = 0.05, 0.04, 0.01, 2.0
    moved = ahead + rng.normal(0, np.sqrt(now - then), 200_000)
    simulated = (moved >= z * np.sqrt(then)).mean()
    chance = np.exp(log_shown(_one(ahead), _one(now), _one(then), z)[0])
    assert chance == pytest.approx(simulated, abs=0.005)


def _index(ahead: float, rest: float, soon: float = 0.02) -> float:
    return float(
        log_index(
            _one(ahead),
            _one(0.04),
            _one(soon),
            _one(0.01),
            2.0,
            first_cost=_one(1.0),
            rest_cost=_one(rest),
        )[0]
    )


def test_leaving_early_is_never_worth_less_than_going_all_the_way() -> None:
    for ahead in (-0.5, -0.1, 0.0, 0.3):
        whole = log_shown(_one(ahead), _one(0.04), _one(0.01), 2.0)[0] - np.log(10.0)
        assert _index(ahead, 9.0) >= whole - 1e-12


def test_the_unlikely_gains_most_from_leaving_early() -> None:
    def gain(ahead: float) -> float:
        whole = log_shown(_one(ahead), _one(0.04), _one(0.01), 2.0)[0] - np.log(10.0)
        return _index(ahead, 9.0) - float(whole)

    assert gain(-0.2) > gain(0.2) > 0


def test_the_index_is_that_of_a_simulated_policy() -> None:
    # Go on when the mean lies at most `slack` b below the target: the better slack of 0 and 1.
    rng = np.random.default_rng(1)
    now, soon, then, z, ahead, rest = 0.04, 0.02, 0.01, 2.0, 0.0, 9.0
    first = ahead + rng.normal(0, np.sqrt(now - soon), 400_000)
    last = first + rng.normal(0, np.sqrt(soon - then), 400_000)
    target, b = z * np.sqrt(then), np.sqrt(soon - then)
    policies = []
    for slack in (0.0, 1.0):
        on = first >= target - slack * b
        policies.append((on & (last >= target)).mean() / (1.0 + on.mean() * rest))
    assert np.exp(_index(ahead, rest)) == pytest.approx(max(policies), rel=0.05)


def test_hopeless_values_are_still_told_apart() -> None:
    assert -np.inf < _index(-3.0, 9.0) < _index(-2.0, 9.0)


def test_one_looks_ahead_from_the_fewest_inputs_to_all_that_there_are() -> None:
    assert targets(16, 100).tolist() == [16, 26, 42, 68, 100]
    assert targets(16, 10).tolist() == [10]


def test_many_looks_at_once_are_those_one_by_one() -> None:
    rng = np.random.default_rng(0)
    ahead, now = rng.normal(0, 0.2, 5), rng.uniform(0.02, 0.04, 5)
    then, rest = rng.uniform(0.001, 0.01, (3, 5)), rng.uniform(0, 9, (3, 5))
    soon, first = 0.5 * (now + then), rng.uniform(0.1, 1, (3, 5))
    found = log_index(ahead, now, soon, then, 2.0, first_cost=first, rest_cost=rest)
    for i in range(3):
        one = log_index(ahead, now, soon[i], then[i], 2.0, first_cost=first[i], rest_cost=rest[i])
        assert found[i] == pytest.approx(one)
