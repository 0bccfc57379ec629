import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.models.knob_process import JITTER, KnobKernel, KnobProcess, correlations

KERNEL = KnobKernel(mean=0.5, constant=0.1, effects=(0.2, 0.3), interaction=0.05)
CELLS = np.array([[a, b] for a in range(3) for b in range(4)])
TABLES = correlations((3, 4), (False, True))


def _prior(x: IndexArray, z: IndexArray, kernel: KnobKernel) -> FloatArray:
    """Return k(x, z) by its formula, entry by entry."""
    total = np.zeros((len(x), len(z)))
    for i, a in enumerate(x):
        for j, b in enumerate(z):
            alike = (float(a[0] == b[0]), float(np.exp(-2 * abs(a[1] - b[1]) / 3)))
            unlike = 2 - sum(alike)
            effects = sum(e * r for e, r in zip(kernel.effects, alike, strict=True))
            together = kernel.interaction * np.exp(-kernel.decay * unlike)
            total[i, j] = kernel.constant + effects + together
    return total


def _process() -> tuple[KnobProcess, IndexArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(0)
    process = KnobProcess(CELLS, TABLES, KERNEL)
    rows, y = rng.integers(0, 12, 20), rng.random(20)
    root = 0.1 * rng.standard_normal((20, 20))
    noise = root @ root.T + 0.01 * np.eye(20)
    for i, row in enumerate(rows):
        process.add(int(row), float(y[i]), noise[i, : i + 1])
    return process, rows, y, noise


def _closed_form(
    kernel: KnobKernel, rows: IndexArray, y: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    x = CELLS[rows]
    inverse = np.linalg.inv(_prior(x, x, kernel) + noise + JITTER * np.eye(len(x)))
    cross = _prior(x, CELLS, kernel)
    mean = kernel.mean + cross.T @ inverse @ (y - kernel.mean)
    return mean, kernel.prior - np.einsum("im,ij,jm->m", cross, inverse, cross)


def test_a_variance_that_is_not_positive_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be finite and > 0, got 0"):
        KnobKernel(mean=0.0, constant=1.0, effects=(0,), interaction=1.0)


def test_an_effect_is_needed_for_every_knob_with_a_choice() -> None:
    with pytest.raises(InvalidInput, match="an effect for each of 1 knobs, got 2"):
        KnobProcess(CELLS[:, :2], correlations((1, 4), (False, True)), KERNEL)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InvalidInput, match="observation must be finite"):
        KnobProcess(CELLS, TABLES, KERNEL).add(0, value, np.array([0.1]))


def test_rows_added_one_by_one_give_the_closed_form() -> None:
    process, rows, y, noise = _process()
    mean, variance = _closed_form(KERNEL, rows, y, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)


def test_a_refit_gives_the_closed_form_of_its_hyper_parameters_and_goes_on() -> None:
    process, rows, y, noise = _process()
    process.refit()
    assert process.kernel != KERNEL
    mean, variance = _closed_form(process.kernel, rows, y, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)
    process.add(3, 0.9, np.append(np.zeros(20), 1e-6))
    assert process.mean[3] == pytest.approx(0.9, abs=1e-3)


def test_revised_values_give_the_closed_form_of_theirs() -> None:
    process, rows, y, noise = _process()
    values = y[::-1] + 0.1
    process.revise(values)
    mean, variance = _closed_form(KERNEL, rows, values, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)


@pytest.mark.parametrize("values", [[0.5], [np.nan] * 20])
def test_revised_values_are_finite_and_one_for_each_observation(values: list[float]) -> None:
    process, *_ = _process()
    with pytest.raises(InvalidInput, match="revision must be 20 finite values"):
        process.revise(np.array(values))


def test_what_was_recalled_is_not_revised() -> None:
    def told(value: float) -> KnobProcess:
        process = KnobProcess(CELLS, TABLES, KERNEL)
        process.recall([0, 5], np.array([0.2, 0.7]), np.full(2, 0.01), own=0.3, shift=0.02)
        process.add(2, value, np.array([0.05]))
        return process

    revised = told(0.9)
    revised.revise(np.array([0.4]))
    assert revised.mean == pytest.approx(told(0.4).mean)


def test_the_model_says_when_it_is_too_sure() -> None:
    process = KnobProcess(CELLS, TABLES, KERNEL)
    for i in range(6):
        noise = np.append(np.zeros(i), 1e-4)
        process.add(i, 10.0 * (-1) ** i, noise)
    assert process.squared_residual > 4


def test_what_was_recalled_gives_the_closed_form_of_shared_and_own_functions() -> None:
    rng = np.random.default_rng(1)
    process = KnobProcess(CELLS, TABLES, KERNEL)
    before, earlier, spread = [0, 5, 7, 11], rng.random(4), np.array([0.01, 0.02, 0.03, 0.04])
    process.recall(before, earlier, spread, own=0.3, shift=0.02)
    rows, y = [5, 5, 2], rng.random(3)
    for i, row in enumerate(rows):
        process.add(row, float(y[i]), np.append(np.full(i, 0.002), 0.05))
    every = CELLS[[*before, *rows]]
    mine = np.arange(7) >= 4
    both = mine[:, None] & mine[None, :]
    shared = _prior(every, every, process.kernel)
    noise = np.diag([*spread, 0.05, 0.05, 0.05])
    noise[4:, 4:] += 0.002 * (1 - np.eye(3))
    total = shared + both * (0.3 * shared + 0.02) + noise + JITTER * np.eye(7)
    cross = _prior(every, CELLS, process.kernel)
    cross[4:] = 1.3 * cross[4:] + 0.02
    values = np.concatenate([earlier, y])
    mean = KERNEL.mean + cross.T @ np.linalg.solve(total, values - KERNEL.mean)
    prior = 1.3 * sum(process.kernel.variances) + 0.02
    explained = np.einsum("im,im->m", cross, np.linalg.solve(total, cross))
    assert len(process) == 3
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(prior - explained, abs=1e-9)


def test_history_that_does_not_fit_stops_counting() -> None:
    def apart(truth: FloatArray) -> float:
        process = KnobProcess(CELLS, TABLES, KERNEL)
        earlier = np.linspace(0, 1, 12)
        process.recall(list(range(12)), earlier, np.full(12, 1e-3), own=0.05, shift=0.01)
        for i in range(8):
            process.add(i, float(truth[i]), np.append(np.zeros(i), 1e-3))
        process.refit()
        return process.kernel.own

    assert apart(np.linspace(0, 1, 12)) < apart(np.linspace(1, 0, 12))


def test_what_queries_share_is_learnt_from_history_and_held_until_half_as_much_is_new() -> None:
    process = KnobProcess(CELLS, TABLES, KERNEL)
    earlier = 0.5 + 0.001 * CELLS[:, 0]  # far flatter than KERNEL thinks
    process.recall(list(range(12)), earlier, np.full(12, 1e-4), own=0.05, shift=0.01)
    shared = process.kernel.variances
    assert sum(shared) < 0.5 * sum(KERNEL.variances)
    truth = 0.5 + np.linspace(-0.4, 0.4, 12)  # this query's is not
    for i in range(5):
        process.add(i, float(truth[i]), np.append(np.zeros(i), 1e-4))
    process.refit()
    assert process.kernel.variances == shared
    assert process.kernel.own > 0.05
    process.add(5, float(truth[5]), np.append(np.zeros(5), 1e-4))
    process.refit()
    assert process.kernel.variances != shared


def test_recalling_after_observing_is_refused() -> None:
    process = KnobProcess(CELLS, TABLES, KERNEL)
    process.add(0, 1.0, np.array([0.1]))
    with pytest.raises(InvalidInput, match="recall must come before observations"):
        process.recall([1], np.array([1.0]), np.array([0.1]), own=0.1, shift=0.1)


def test_a_recalled_value_that_is_not_finite_is_refused() -> None:
    process = KnobProcess(CELLS, TABLES, KERNEL)
    with pytest.raises(InvalidInput, match="recall must get finite values only"):
        process.recall([1], np.array([np.nan]), np.array([0.1]), own=0.1, shift=0.1)


@pytest.mark.parametrize("refits", [False, True])
def test_many_observations_of_few_candidates_give_the_closed_form(refits: bool) -> None:
    rng = np.random.default_rng(2)
    process = KnobProcess(CELLS, TABLES, KERNEL)
    rows, y = rng.permutation(np.repeat([3, 7, 8, 10], 40)), rng.random(160)
    for i, row in enumerate(rows):
        process.add(int(row), float(y[i]), np.append(np.full(i, 0.01), 0.05))
    if refits:
        process.refit()
    noise = np.full((160, 160), 0.01) + 0.04 * np.eye(160)
    mean, variance = _closed_form(process.kernel, rows, y, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)
