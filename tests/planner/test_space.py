import numpy as np
import pytest

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.planner.strategy.space import (
    candidates,
    encode,
    indices_of,
    neighbours,
    numbers_of,
    spread,
)
from tests.oracles.synthetic import chain


def test_a_small_space_is_taken_whole_in_order() -> None:
    space = ConfigurationSpace(chain(2, 3))
    pool = candidates(space, np.random.default_rng(0))
    assert pool.whole
    assert pool.numbers == tuple(range(6))
    assert pool.encoded.shape == (6, 5)
    assert (pool.encoded.sum(axis=1) == 2).all()


def test_a_pipeline_without_knobs_has_one_configuration_and_no_columns() -> None:
    pool = candidates(ConfigurationSpace(chain(0, 0)), np.random.default_rng(0))
    assert pool.numbers == (0,)
    assert pool.encoded.shape == (1, 0)


def test_a_knob_without_choice_has_no_column() -> None:
    assert encode(ConfigurationSpace(chain(1, 2)), [0, 1]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("knobs", [10, 25])  # 10^25 does not fit 64 bits
def test_a_huge_space_is_sampled_with_exact_numbers(knobs: int) -> None:
    space = ConfigurationSpace(chain(*[10] * knobs))
    pool = candidates(space, np.random.default_rng(0), limit=50)
    assert not pool.whole
    assert len(set(pool.numbers)) == len(pool.numbers) <= 50
    assert all(0 <= number < space.size for number in pool.numbers)
    rows = indices_of(space, pool.numbers)
    assert numbers_of(space, rows) == list(pool.numbers)
    assert [space.number(space.configuration(n)) for n in pool.numbers] == list(pool.numbers)


def test_neighbours_differ_in_exactly_one_knob() -> None:
    space = ConfigurationSpace(chain(2, 3, 1))
    near = neighbours(space, 4)
    here = indices_of(space, [4])[0]
    assert len(near) == 3
    assert ((indices_of(space, near) != here).sum(axis=1) == 1).all()


def test_the_spread_set_shares_no_value_while_it_can() -> None:
    pool = candidates(ConfigurationSpace(chain(3, 3, 3)), np.random.default_rng(0))
    picks = spread(pool, 3, np.random.default_rng(1))
    # Three values per knob: three rows can differ in every knob.
    assert (pool.encoded[picks].sum(axis=0) == 1).all()


def test_the_spread_set_is_the_whole_space_when_that_is_smaller() -> None:
    pool = candidates(ConfigurationSpace(chain(2)), np.random.default_rng(0))
    assert sorted(spread(pool, 5, np.random.default_rng(1))) == [0, 1]
