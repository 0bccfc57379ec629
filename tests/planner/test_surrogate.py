import numpy as np
import pytest
import torch

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray
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
