"""Which configuration is worth measuring: U = Pr[f_a >= A] * Pr[f_l <= L] / C.

Circinus 4.2. In log space, because far from the SLOs the probabilities underflow and
every candidate would look alike.

| symbol | meaning |
| --- | --- |
| f_a | accuracy of a configuration |
| f_l | log of the least latency that any placement gives it at full shares |
| C | profiling cost: predicted operator seconds per input on the reference machine |

Deviations: the paper models a plan with its placement; here f_l is the best over
placements, because placement is computed and not searched. The paper derives C from
f_l; it is predicted from the reference seconds instead, with the covariance that f_l
learnt, because latency on another tier is not what profiling costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from pipelines.profile import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Normals:
    """Normal predictions, one per candidate, or one per model and candidate.

    Attributes:
        mean: Shape (m,) or (Q, m); what follows from it is of the same shape.
        deviation: Standard deviation, `> 0`, the same shape.
    """

    mean: FloatArray
    deviation: FloatArray


def log_at_least(prediction: Normals, bound: float) -> FloatArray:  # (m,)
    """Give log Pr[value >= bound]."""
    return np.asarray(log_ndtr((prediction.mean - bound) / prediction.deviation))


def log_at_most(prediction: Normals, bound: float) -> FloatArray:  # (m,)
    """Give log Pr[value <= bound]."""
    return np.asarray(log_ndtr((bound - prediction.mean) / prediction.deviation))


def log_chance(
    accuracy: Normals, log_latency: Normals, *, accuracy_slo: float, latency_slo_s: float
) -> FloatArray:  # (m,)
    """Give the log of the joint probability, the two taken as independent."""
    return log_at_least(accuracy, accuracy_slo) + log_at_most(log_latency, np.log(latency_slo_s))


def log_utility(chance: FloatArray, log_cost: FloatArray) -> FloatArray:  # (m,)
    """Give log U from the log of the joint probability and the log of C."""
    return np.asarray(chance - log_cost)
