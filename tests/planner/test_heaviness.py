from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.profile import FloatArray
from planner.heaviness import Heaviness

N = 30
COUNTS = (1, 1, 5, 5, 9, 20, N, 3)


def test_before_anything_is_seen_nothing_is_corrected() -> None:
    means, variances = Heaviness(N).corrected(np.zeros(0), np.zeros(0, dtype=np.int64), 0.3)
    assert means.shape == variances.shape == (0,)


def test_a_cell_alone_keeps_its_mean_and_the_variance_of_a_sample() -> None:
    model = Heaviness(N)
    model.add(3, np.array([1.0, 2.0, 6.0, 1.0]))
    mean, variance = model.corrected(np.array([2.5]), np.array([4]), 0.4)
    assert mean == pytest.approx([2.5])
    assert variance == pytest.approx([0.4 * (1 / 4 - 1 / N)])


def test_what_met_only_a_heavy_input_is_faster_than_it_looks() -> None:
    inputs = np.array([3.0, 1.0, 1.1, 0.9, 1.0, 1.1, 1.0, 0.9, 1.0, 1.0])
    model = Heaviness(10)
    for cell, factor in enumerate((1.0, 2.0, 5.0)):
        model.add(cell, factor * inputs)
    model.add(3, 4 * inputs[:1])
    means = np.array([1.2, 2.4, 6.0, 12.0])
    corrected, variance = model.corrected(means, np.array([10, 10, 10, 1]), 0.3)
    assert corrected[:3] == pytest.approx(means[:3])  # known
    assert corrected[3] == pytest.approx(4.8, rel=0.15)
    assert variance[:3] == pytest.approx([0, 0, 0])
    assert variance[3] < 0.3 * (1 - 1 / 10) / 2


def test_where_nothing_is_to_be_learnt_all_inputs_are_alike() -> None:
    model = Heaviness(N, learning=False)
    for cell in range(3):
        model.add(cell, np.array([3.0, 1.0, 1.1, 0.9, 1.0, 1.1]))
    model.add(3, np.array([3.0]))
    means, inputs = np.array([1.35, 1.35, 1.35, 3.0]), np.array([6, 6, 6, 1])
    corrected, variance = model.corrected(means, inputs, 0.4)
    assert corrected == pytest.approx(means)
    assert variance == pytest.approx(0.4 * (1 / inputs - 1 / N))


def test_corrections_are_those_of_the_linear_model_with_random_effects() -> None:
    """Against generalised least squares over all seconds, each with its own unknown."""
    rng = np.random.default_rng(0)
    share, cv2 = 0.6, 0.1
    heavier = rng.normal(0, np.sqrt(share * cv2), N)
    own = [rng.normal(0, np.sqrt((1 - share) * cv2), n) for n in COUNTS]
    seconds = [1 + heavier[:n] + e for n, e in zip(COUNTS, own, strict=True)]
    model = Heaviness(N)
    for cell, each in enumerate(seconds):
        model.add(cell, 10.0 ** (cell - 4) * each)
    means = np.array([each.mean() for each in seconds])
    found, variances = model.corrected(means, np.array(COUNTS), cv2)
    expected, spread = _least_squares([s / s.mean() - 1 for s in seconds], model.share, cv2)
    whole = np.array(COUNTS) == N
    assert means / found - 1 == pytest.approx(np.where(whole, 0, expected))
    assert variances == pytest.approx(np.where(whole, 0, spread))


def _least_squares(
    z: Sequence[FloatArray], share: float, cv2: float
) -> tuple[FloatArray, FloatArray]:
    cells, own = len(z), (1 - share) * cv2
    design = np.zeros((sum(map(len, z)), cells + N))
    line = 0
    for cell, each in enumerate(z):
        for i in range(len(each)):
            design[line, [cell, cells + i]] = 1
            line += 1
    prior = np.diag(np.repeat([0, 1 / (share * cv2)], [cells, N]))
    covariance = np.linalg.inv(design.T @ design / own + prior)
    solved = covariance @ design.T @ np.concatenate(z) / own
    values, variances = [], []
    for each in z:
        n = len(each)
        weight = np.zeros(cells + N)
        weight[cells : cells + n] += 1 / n
        weight[cells:] -= 1 / N
        values.append(weight @ solved)
        variances.append(own * (1 / n - 1 / N) + weight @ covariance @ weight)
    return np.array(values), np.array(variances)


def test_means_are_nearer_to_the_truth_where_inputs_are_heavy_for_all_cells() -> None:
    """Against draws: 40 cells that met the first input only, beside three that met more."""
    rng = np.random.default_rng(1)
    before, after = [], []
    for _ in range(200):
        inputs = rng.gamma(4, 1 / 4, N)
        seconds = inputs * rng.gamma(20, 1 / 20, (43, N))
        counts = np.repeat([1, 12], [40, 3])
        model = Heaviness(N)
        for cell, (each, n) in enumerate(zip(seconds, counts, strict=True)):
            model.add(cell, each[:n])
        seen = np.array([each[:n].mean() for each, n in zip(seconds, counts, strict=True)])
        found, _ = model.corrected(seen, counts, 0.3)
        truth = seconds.mean(axis=1)
        before.append(np.square(np.log(seen / truth))[:40].mean())
        after.append(np.square(np.log(found / truth))[:40].mean())
    assert np.mean(after) < 0.4 * np.mean(before)


def test_the_share_is_that_of_what_cells_have_in_common() -> None:
    rng = np.random.default_rng(2)
    common, own = rng.standard_normal(200), rng.standard_normal((20, 200))
    for share in (0.0, 0.3, 0.8):
        model = Heaviness(200)
        for cell, each in enumerate(np.sqrt(share) * common + np.sqrt(1 - share) * own):
            model.add(cell, 1 + 0.2 * each)
        assert model.share == pytest.approx(share, abs=0.1)


def test_equal_seconds_need_no_correction() -> None:
    model = Heaviness(10)
    for cell, n in enumerate((1, 6, 8)):
        model.add(cell, np.full(n, 2.0))
    mean, variance = model.corrected(np.full(3, 2.0), np.array([1, 6, 8]), 0.1)
    assert mean == pytest.approx([2.0, 2.0, 2.0])
    assert np.isfinite(variance).all()


def test_a_spike_in_one_cell_is_not_the_inputs() -> None:
    spiky, quiet = np.ones(12), np.ones(12)
    spiky[7] = 300.0
    model = Heaviness(40)
    for cell in range(4):
        model.add(cell, spiky if cell == 0 else quiet)
    means = np.array([spiky.mean(), 1.0, 1.0, 1.0])
    corrected, _ = model.corrected(means, np.full(4, 12), 0.3)
    assert corrected[1:] == pytest.approx([1.0, 1.0, 1.0], abs=0.1)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=12),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_any_seconds_give_finite_means_and_the_latest_ones_count(
    drawn: list[tuple[int, list[float]]],
) -> None:
    model, latest = Heaviness(12), Heaviness(12)
    known: dict[int, FloatArray] = {}
    for cell, seconds in drawn:
        known[cell] = np.array(seconds)
        model.add(cell, known[cell])
    for cell, each in known.items():
        latest.add(cell, each)
    means = np.array([each.mean() for each in known.values()])
    counts = np.array([len(each) for each in known.values()])
    found, variance = model.corrected(means, counts, 0.3)
    again, spread = latest.corrected(means, counts, 0.3)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (variance >= 0).all()
    assert found == pytest.approx(again, rel=1e-6, abs=1e-9)
    assert variance == pytest.approx(spread, rel=1e-6, abs=1e-9)
