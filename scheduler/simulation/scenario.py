"""What happens in a simulated run, drawn beforehand.

| symbol | meaning |
| --- | --- |
| N | requests, in order of arrival |
| K, n | kinds of instance, instances |

Everything random is drawn before the run, one stream per source: two policies meet the same
arrivals, the same sizes and the same luck of each request on each kind of instance.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines import checks
from scheduler.dispatch.policy import Fleet, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """N requests to a fleet.

    Attributes:
        arrived_s: Not falling.
        size: Of each request.
        service_s: Seconds that each takes on each kind, `> 0`; infinite: cannot be.
        predicted_s: Seconds that the policy is told.
        qos_s: A request should be answered within so many seconds, `> 0`.
        fleet: Its `kind` is the column in `service_s`.
    """

    arrived_s: FloatArray  # (N,)
    size: FloatArray  # (N,)
    service_s: FloatArray  # (N, K)
    predicted_s: FloatArray  # (N, K)
    qos_s: float
    fleet: Fleet

    def __post_init__(self) -> None:
        count, kinds = len(self.arrived_s), self.service_s.shape[-1]
        checks.positive("qos_s", self.qos_s)
        shapes = (self.size.shape, self.service_s.shape, self.predicted_s.shape)
        wanted = ((count,), (count, kinds), (count, kinds))
        checks.require(shapes == wanted, "shapes", f"must be {wanted}", shapes)
        rising = bool((self.arrived_s[1:] >= self.arrived_s[:-1]).all())
        checks.require(rising, "arrived_s", "must not fall", "a time before the one before it")
        positive = bool((self.service_s > 0).all() and (self.predicted_s >= 0).all())
        checks.require(positive, "service_s", "must be > 0", "an entry that is not")
        known = bool((self.fleet.kind < kinds).all())
        checks.require(known, "fleet.kind", f"must be < {kinds}", self.fleet.kind)
