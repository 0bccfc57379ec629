from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.kairos_bound import KairosFigures, kairos_bounds, kairos_figures
from circinus.scheduler.simulation.loads import kairos_batches
from tests.scheduler.kairos_data import (
    QOS_S,
    latencies,
    needs_data,
    published_figures,
)


def figures(**changed: Any) -> KairosFigures:  # noqa: ANN401 - values of any field
    """One auxiliary type: f = 0.8, Q_a = 8, Q_b = 10, Q_b^{s+} = 4."""
    values: dict[str, Any] = {
        "base_rps": 10.0,
        "base_large_rps": np.array([4.0]),
        "small": np.array([0.8]),
        "auxiliary_rps": np.array([[8.0]]),
    }
    return KairosFigures(**{**values, **changed})


def by_the_paper(
    u: int, v: int, base: float, large: float, small: float, auxiliary: float
) -> float:
    """Equations 12 and 13 word by word; with u = v = 1 they are 9 and 11."""
    offloaded = (1 - small) / small * v * auxiliary
    if u * large <= offloaded:
        return u * large / (1 - small)
    slack = (u * large - offloaded) / (u * large) * u * base
    return v * auxiliary / small + slack


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base_rps": 0.0}, "base_rps must be finite and > 0"),
        ({"small": np.array([1.1])}, r"small must be in \[0, 1\]"),
        ({"auxiliary_rps": np.array([[-1.0]])}, "auxiliary_rps must be finite and >= 0"),
        ({"base_large_rps": np.array([inf])}, "base_large_rps must be finite and >= 0"),
        ({"small": np.array([0.5, 0.5])}, "shapes must agree"),
    ],
)
def test_figures_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        figures(**changed)


def test_pools_of_other_types_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pools must have 2 types"):
        kairos_bounds(figures(), np.array([[1, 1, 1]]))


def test_a_base_type_that_is_late_is_refused() -> None:
    with pytest.raises(InvalidInput, match="latency of the base type must be at most 1 s"):
        kairos_figures(np.array([0.5, 0.5]), np.array([[0.5, 1.0], [1.1, 3.0]]), 1.0)


def test_an_auxiliary_instance_that_is_full_leaves_slack_to_the_base() -> None:
    # C = 0.25 * 8 = 2 < 4: 8 / 0.8 + (4 - 2) / 4 * 10 = 15
    assert kairos_bounds(figures(), np.array([[1, 1]])).tolist() == pytest.approx([15.0])


def test_a_base_that_is_full_is_the_bottleneck() -> None:
    # C = 0.25 * 24 = 6 > 4: 4 / 0.2 = 20
    assert kairos_bounds(figures(), np.array([[1, 3]])).tolist() == pytest.approx([20.0])


def test_without_instances_of_one_side_the_other_remains() -> None:
    # large requests are not served without a base
    assert kairos_bounds(figures(), np.array([[0, 3], [2, 0]])).tolist() == [0.0, 20.0]
    everything = figures(small=np.array([1.0]))
    assert kairos_bounds(everything, np.array([[2, 3]])).tolist() == [44.0]
    nothing = figures(small=np.array([0.0]))
    assert kairos_bounds(nothing, np.array([[2, 3]])).tolist() == [20.0]


@given(
    u=st.integers(0, 9),
    v=st.integers(1, 9),
    base=st.floats(0.1, 100),
    large=st.floats(0.1, 100),
    small=st.floats(0.01, 0.99),
    auxiliary=st.floats(0.1, 100),
)
def test_one_auxiliary_type_is_as_the_paper_writes_it(
    u: int, v: int, base: float, large: float, small: float, auxiliary: float
) -> None:
    told = KairosFigures(
        base_rps=base,
        base_large_rps=np.array([large]),
        small=np.array([small]),
        auxiliary_rps=np.array([[auxiliary]]),
    )
    found = kairos_bounds(told, np.array([[u, v]]))
    assert found == pytest.approx([by_the_paper(u, v, base, large, small, auxiliary)])


def test_the_type_that_is_in_time_furthest_says_what_is_small() -> None:
    told = figures(
        base_large_rps=np.array([4.0, 5.0]),
        small=np.array([0.8, 0.5]),
        auxiliary_rps=np.array([[8.0, 3.0], [9.0, 6.0]]),
    )
    # both there: sum v Q_a = 8 + 2 * 3; the second alone goes by its own f and rates
    both, alone = kairos_bounds(told, np.array([[1, 1, 2], [1, 0, 2]])).tolist()
    assert both == pytest.approx(by_the_paper(1, 1, 10.0, 4.0, 0.8, 14.0))
    assert alone == pytest.approx(by_the_paper(1, 2, 10.0, 5.0, 0.5, 6.0))


def test_figures_of_latencies_are_those_of_the_definitions() -> None:
    # sizes in shares 1/2, 1/4, 1/4; the auxiliary type is late from the second on
    share = np.array([0.5, 0.25, 0.25])
    latency = np.array([[1.0, 2.0], [2.0, 9.0], [4.0, inf]])
    found = kairos_figures(share, latency, 5.0)
    assert found.base_rps == pytest.approx(1 / 2)  # 0.5 + 0.5 + 1 seconds on average
    assert found.small.tolist() == [0.5]
    assert found.base_large_rps.tolist() == pytest.approx([0.5 / 1.5])
    assert found.auxiliary_rps.tolist() == [[pytest.approx(1 / 2)]]


def test_a_type_that_is_always_late_adds_nothing() -> None:
    found = kairos_figures(np.array([1.0]), np.array([[1.0, 9.0]]), 5.0)
    assert kairos_bounds(found, np.array([[1, 7]])).tolist() == [1.0]


@needs_data
@pytest.mark.parametrize("model", QOS_S)
def test_figures_of_the_measured_latencies_are_the_authors_own(model: str) -> None:
    table = latencies(model)
    rows = table.rows(kairos_batches(200_000, np.random.default_rng(1)))
    share = np.bincount(rows, minlength=len(table.batches)) / len(rows)
    ours, theirs = kairos_figures(share, table.mean_s, QOS_S[model]), published_figures(model)
    assert ours.base_rps == pytest.approx(theirs.base_rps, rel=0.01)
    # t3.xlarge is noisy: where it begins to be late is a matter of luck
    assert ours.small[:2] == pytest.approx(theirs.small[:2], rel=0.01)
    assert ours.base_large_rps[:2] == pytest.approx(theirs.base_large_rps[:2], rel=0.03)
    upper = np.triu_indices(2)
    assert ours.auxiliary_rps[upper] == pytest.approx(theirs.auxiliary_rps[upper], rel=0.02)
