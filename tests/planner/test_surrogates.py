import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.models.knob_basis import KnobBasis
from circinus.planner.models.knob_process import JITTER, KnobKernel, KnobProcess, correlations
from circinus.planner.strategy.surrogate import CHOLESKY_JITTER, Surrogate, fit


def _closed_form(
    surrogate: Surrogate, x: FloatArray, y: FloatArray, at: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and deviation by inverting the covariance, in numpy alone."""
    model = surrogate.model
    lengths = model.covar_module.base_kernel.lengthscale.detach().numpy()[0]
    s = model.covar_module.outputscale.item()
    noise = model.likelihood.noise.item() + CHOLESKY_JITTER
    constant = model.mean_module.constant.item()

    def k(a: FloatArray, b: FloatArray) -> FloatArray:
        r = np.sqrt(5) * np.sqrt((((a[:, None] - b[None]) / lengths) ** 2).sum(-1))
        return np.asarray(s * (1 + r + r**2 / 3) * np.exp(-r))

    offset, scale = y.mean(), y.std()
    inverse = np.linalg.inv(k(x, x) + noise * np.eye(len(x)))
    mean = constant + k(at, x) @ inverse @ ((y - offset) / scale - constant)
    variance = s - np.einsum("mi,ij,mj->m", k(at, x), inverse, k(at, x))
    return offset + scale * mean, scale * np.sqrt(variance)


def test_targets_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InvalidInput, match="finite values only"):
        fit(np.eye(2), np.array([[0.1], [np.nan]]))


def test_targets_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must have 2 rows"):
        fit(np.eye(2), np.zeros((3, 1)))


def test_predictions_equal_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    x, y, at = rng.random((12, 4)), rng.random((12, 2)), rng.random((7, 4))
    surrogate = fit(x, y)
    predicted = surrogate.predict(at)
    for column in range(2):
        mean, deviation = _closed_form(surrogate, x, y[:, column], at)
        # gpytorch takes distances through inner products: exact to about 1e-8 of a variance of 1.
        np.testing.assert_allclose(predicted.mean[:, column], mean, atol=1e-6)
        np.testing.assert_allclose(predicted.deviation[:, column], deviation, rtol=1e-4)


def test_a_fit_learns_which_column_matters() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (40, 3)).astype(float)
    fitted = fit(x[:30], x[:30, :1] * 2 + 1)
    np.testing.assert_allclose(fitted.predict(x[30:]).mean[:, 0], x[30:, 0] * 2 + 1, atol=0.2)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_constant_targets_are_predicted_as_they_are(n: int) -> None:
    x = np.random.default_rng(0).integers(0, 2, (n, 3)).astype(float)
    predicted = fit(x, np.full((n, 1), 0.5)).predict(x)
    np.testing.assert_allclose(predicted.mean, 0.5, atol=0.2)
    assert (predicted.deviation > 0).all()


def test_equal_rows_do_not_break_the_factorisation() -> None:
    predicted = fit(np.ones((20, 2)), np.linspace(0, 1, 20)[:, None]).predict(np.ones((1, 2)))
    assert predicted.mean[0, 0] == pytest.approx(0.5, abs=0.05)


def test_a_warm_start_leaves_the_earlier_fit_and_the_threads_alone() -> None:
    x, y = np.eye(4), np.arange(4.0)[:, None]
    threads = torch.get_num_threads()
    first = fit(x, y)
    before = first.predict(x).mean
    fit(x, -y, warm=first)
    assert (first.predict(x).mean == before).all()
    assert torch.get_num_threads() == threads


def test_equal_data_give_equal_fits() -> None:
    x, y = np.eye(4), np.arange(4.0)[:, None]
    assert (fit(x, y).predict(x).mean == fit(x, y).predict(x).mean).all()


RADICES = (3, 1, 4)  # the second knob has no choice
CELLS = np.array([[a, 0, b] for a in range(3) for b in range(4)])
TABLES = correlations(RADICES, (False, True, True))
EFFECTS, TOGETHER, CONSTANT, DECAY = (0.2, 0.3), 0.05, 0.1, 0.7


def _covariance(one: int, other: int) -> float:
    """Return k by its formula."""
    alike = [TABLES[k][CELLS[one, k], CELLS[other, k]] for k in (0, 2)]
    effects = sum(effect * r for effect, r in zip(EFFECTS, alike, strict=True))
    return float(CONSTANT + effects + TOGETHER * np.exp(-DECAY * sum(1 - r for r in alike)))


@given(st.lists(st.integers(0, 11), min_size=1, max_size=40))
def test_a_covariance_is_a_sum_of_rows_whatever_was_met_before(met: list[int]) -> None:
    basis = KnobBasis(CELLS, TABLES, DECAY)
    for candidate in met:
        parts = basis.parts(candidate)
        found = np.array([*EFFECTS, TOGETHER, CONSTANT]) @ basis.at(range(12))[parts]
        assert found == pytest.approx([_covariance(candidate, other) for other in range(12)])


@given(st.lists(st.integers(0, 11), max_size=40))
def test_rows_are_as_many_as_values_and_unlike_candidates_met(met: list[int]) -> None:
    basis = KnobBasis(CELLS, TABLES, DECAY)
    before = [basis.parts(candidate).tolist() for candidate in met]
    assert len(basis) == 1 + 3 + 4 + len(set(met))
    assert [basis.parts(candidate).tolist() for candidate in met] == before


def test_more_candidates_than_there_was_room_for_are_taken_in() -> None:
    cells = np.arange(700)[:, None]
    basis = KnobBasis(cells, correlations((700,), (True,)), DECAY)
    parts = np.stack([basis.parts(candidate) for candidate in range(700)])
    every = basis.at(range(700))
    assert np.diag(every[parts[:, 0]]) == pytest.approx(1.0)
    assert np.diag(every[parts[:, 1]]) == pytest.approx(1.0)


def test_without_a_choice_all_is_one_and_the_same() -> None:
    basis = KnobBasis(np.zeros((1, 2), dtype=np.int64), correlations((1, 1), (True, True)), DECAY)
    parts = basis.parts(0)
    assert basis.at([0])[parts].tolist() == [[1.0], [1.0]]


@given(
    count=st.sampled_from([1, 12, 60]),
    met=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    whole=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_of_rows_and_of_their_squares_are_those_of_b_written_out(
    count: int, met: list[int], whole: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cells = CELLS if whole else CELLS[np.sort(rng.choice(12, 5, replace=False))]
    basis = KnobBasis(cells, TABLES, DECAY)
    for candidate in met:
        basis.parts(candidate)
    weights = np.tril(rng.standard_normal((count, len(basis))))
    sums = weights @ basis.at(range(len(cells)))
    assert basis.combined(weights[-1]) == pytest.approx(sums[-1])
    assert basis.squared(weights) == pytest.approx(np.square(sums).sum(axis=0))


KERNEL = KnobKernel(mean=0.5, constant=0.1, effects=(0.2, 0.3), interaction=0.05)
KNOB_PROCESS_CELLS = np.array([[a, b] for a in range(3) for b in range(4)])
KNOB_PROCESS_TABLES = correlations((3, 4), (False, True))


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
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    rows, y = rng.integers(0, 12, 20), rng.random(20)
    root = 0.1 * rng.standard_normal((20, 20))
    noise = root @ root.T + 0.01 * np.eye(20)
    for i, row in enumerate(rows):
        process.add(int(row), float(y[i]), noise[i, : i + 1])
    return process, rows, y, noise


def _knob_process_closed_form(
    kernel: KnobKernel, rows: IndexArray, y: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    x = KNOB_PROCESS_CELLS[rows]
    inverse = np.linalg.inv(_prior(x, x, kernel) + noise + JITTER * np.eye(len(x)))
    cross = _prior(x, KNOB_PROCESS_CELLS, kernel)
    mean = kernel.mean + cross.T @ inverse @ (y - kernel.mean)
    return mean, kernel.prior - np.einsum("im,ij,jm->m", cross, inverse, cross)


def test_a_variance_that_is_not_positive_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be finite and > 0, got 0"):
        KnobKernel(mean=0.0, constant=1.0, effects=(0,), interaction=1.0)


def test_an_effect_is_needed_for_every_knob_with_a_choice() -> None:
    with pytest.raises(InvalidInput, match="an effect for each of 1 knobs, got 2"):
        KnobProcess(KNOB_PROCESS_CELLS[:, :2], correlations((1, 4), (False, True)), KERNEL)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InvalidInput, match="observation must be finite"):
        KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL).add(0, value, np.array([0.1]))


def test_rows_added_one_by_one_give_the_closed_form() -> None:
    process, rows, y, noise = _process()
    mean, variance = _knob_process_closed_form(KERNEL, rows, y, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)


def test_a_refit_gives_the_closed_form_of_its_hyper_parameters_and_goes_on() -> None:
    process, rows, y, noise = _process()
    process.refit()
    assert process.kernel != KERNEL
    mean, variance = _knob_process_closed_form(process.kernel, rows, y, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)
    process.add(3, 0.9, np.append(np.zeros(20), 1e-6))
    assert process.mean[3] == pytest.approx(0.9, abs=1e-3)


def test_revised_values_give_the_closed_form_of_theirs() -> None:
    process, rows, y, noise = _process()
    values = y[::-1] + 0.1
    process.revise(values)
    mean, variance = _knob_process_closed_form(KERNEL, rows, values, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)


@pytest.mark.parametrize("values", [[0.5], [np.nan] * 20])
def test_revised_values_are_finite_and_one_for_each_observation(values: list[float]) -> None:
    process, *_ = _process()
    with pytest.raises(InvalidInput, match="revision must be 20 finite values"):
        process.revise(np.array(values))


def test_what_was_recalled_is_not_revised() -> None:
    def told(value: float) -> KnobProcess:
        process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
        process.recall([0, 5], np.array([0.2, 0.7]), np.full(2, 0.01), own=0.3, shift=0.02)
        process.add(2, value, np.array([0.05]))
        return process

    revised = told(0.9)
    revised.revise(np.array([0.4]))
    assert revised.mean == pytest.approx(told(0.4).mean)


def test_the_model_says_when_it_is_too_sure() -> None:
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    for i in range(6):
        noise = np.append(np.zeros(i), 1e-4)
        process.add(i, 10.0 * (-1) ** i, noise)
    assert process.squared_residual > 4


def test_what_was_recalled_gives_the_closed_form_of_shared_and_own_functions() -> None:
    rng = np.random.default_rng(1)
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    before, earlier, spread = [0, 5, 7, 11], rng.random(4), np.array([0.01, 0.02, 0.03, 0.04])
    process.recall(before, earlier, spread, own=0.3, shift=0.02)
    rows, y = [5, 5, 2], rng.random(3)
    for i, row in enumerate(rows):
        process.add(row, float(y[i]), np.append(np.full(i, 0.002), 0.05))
    every = KNOB_PROCESS_CELLS[[*before, *rows]]
    mine = np.arange(7) >= 4
    both = mine[:, None] & mine[None, :]
    shared = _prior(every, every, process.kernel)
    noise = np.diag([*spread, 0.05, 0.05, 0.05])
    noise[4:, 4:] += 0.002 * (1 - np.eye(3))
    total = shared + both * (0.3 * shared + 0.02) + noise + JITTER * np.eye(7)
    cross = _prior(every, KNOB_PROCESS_CELLS, process.kernel)
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
        process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
        earlier = np.linspace(0, 1, 12)
        process.recall(list(range(12)), earlier, np.full(12, 1e-3), own=0.05, shift=0.01)
        for i in range(8):
            process.add(i, float(truth[i]), np.append(np.zeros(i), 1e-3))
        process.refit()
        return process.kernel.own

    assert apart(np.linspace(0, 1, 12)) < apart(np.linspace(1, 0, 12))


def test_what_queries_share_is_learnt_from_history_and_held_until_half_as_much_is_new() -> None:
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    earlier = 0.5 + 0.001 * KNOB_PROCESS_CELLS[:, 0]  # far flatter than KERNEL thinks
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
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    process.add(0, 1.0, np.array([0.1]))
    with pytest.raises(InvalidInput, match="recall must come before observations"):
        process.recall([1], np.array([1.0]), np.array([0.1]), own=0.1, shift=0.1)


def test_a_recalled_value_that_is_not_finite_is_refused() -> None:
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    with pytest.raises(InvalidInput, match="recall must get finite values only"):
        process.recall([1], np.array([np.nan]), np.array([0.1]), own=0.1, shift=0.1)


@pytest.mark.parametrize("refits", [False, True])
def test_many_observations_of_few_candidates_give_the_closed_form(refits: bool) -> None:
    rng = np.random.default_rng(2)
    process = KnobProcess(KNOB_PROCESS_CELLS, KNOB_PROCESS_TABLES, KERNEL)
    rows, y = rng.permutation(np.repeat([3, 7, 8, 10], 40)), rng.random(160)
    for i, row in enumerate(rows):
        process.add(int(row), float(y[i]), np.append(np.full(i, 0.01), 0.05))
    if refits:
        process.refit()
    noise = np.full((160, 160), 0.01) + 0.04 * np.eye(160)
    mean, variance = _knob_process_closed_form(process.kernel, rows, y, noise)
    assert process.mean == pytest.approx(mean)
    assert process.variance == pytest.approx(variance, abs=1e-9)
