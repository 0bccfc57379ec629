"""One number for how well a configuration serves a query, as Vulcan and VideoStorm use.

Circinus 4.2 writes it as |latency - target| + alpha |accuracy - target|, less being
better. Taken literally that punishes being better than asked; here only shortfalls
count, and a tenth of the spare latency breaks ties towards cheap configurations. Both
make the competitors stronger.
"""

from __future__ import annotations

from pipelines.slo import Slo
from planner.strategy import Observation

ACCURACY_WEIGHT = 2.0
"""alpha: relative shortfalls of accuracy are smaller than those of latency."""

_BONUS = 0.1


def utility(slo: Slo, seen: Observation) -> float:
    """Give the utility: at least 0 when both SLOs hold, below -0.9 at worst twice the latency."""
    short = max(slo.accuracy - seen.accuracy, 0.0) / max(slo.accuracy, 1e-9)
    late = min(max(seen.latency_s / slo.latency_s - 1, 0.0), 10.0)
    spare = max(1 - seen.latency_s / slo.latency_s, 0.0)
    return _BONUS * spare - ACCURACY_WEIGHT * short - late
