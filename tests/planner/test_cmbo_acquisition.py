import numpy as np
from scipy.stats import norm

from circinus.pipelines.model.slo import Slo
from circinus.planner.strategy.cmbo import log_chance
from circinus.planner.strategy.surrogate import Posterior

_ACCURACY = Posterior(mean=np.array([0.7, 0.9]), deviation=np.array([0.1, 0.05]))
_LATENCY = Posterior(mean=np.log([0.5, 2.0]), deviation=np.array([0.3, 0.2]))


def test_the_log_utility_equals_the_naive_product() -> None:
    chance = log_chance(_ACCURACY, _LATENCY, Slo(accuracy=0.8, latency_s=1.0))
    cost = np.array([0.1, 3.0])
    naive = (
        norm.sf(0.8, _ACCURACY.mean, _ACCURACY.deviation)
        * norm.cdf(0.0, _LATENCY.mean, _LATENCY.deviation)
        / cost
    )
    np.testing.assert_allclose(np.exp(chance - np.log(cost)), naive, rtol=1e-12)


def test_hopeless_candidates_still_differ() -> None:
    far = Posterior(mean=np.array([0.1, 0.2]), deviation=np.full(2, 0.01))
    logs = far.log_at_least(0.9)  # both probabilities are 0 in floating point
    assert np.isfinite(logs).all()
    assert logs[1] > logs[0]
