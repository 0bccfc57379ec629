import numpy as np
import pytest

from pipelines.configuration import IndexArray
from pipelines.errors import InvalidInput
from pipelines.profile import FloatArray
from planner.knob_process import JITTER, KnobKernel, KnobProcess, correlations

KERNEL = KnobKernel(mean=0.5, constant=0.1, effects=(0.2, 0.3), interaction=0.05)
CELLS = np.array([[a, b] for a in range(3) for b in range(4)])
TABLES = correlations((3, 4), (False, True))


def _prior(x: IndexArray, z: IndexArray, kernel: KnobKernel) -> FloatArray:
    """Give k(x, z) by its formula, entry by entry."""
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


def test_the_model_says_when_it_is_too_sure() -> None:
    process = KnobProcess(CELLS, TABLES, KERNEL)
    for i in range(6):
        noise = np.append(np.zeros(i), 1e-4)
        process.add(i, 10.0 * (-1) ** i, noise)
    assert process.surprise > 4
