"""Plans of one machine type and one endpoint, priced by a table: what closed forms are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.plan import Deployment, Plan, PlanCalls
from circinus.pipelines.model.slo import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """One machine and one endpoint, either of which answers requests."""

    machine_usd_per_hour: float
    per_machine_per_s: float  # requests that one machine answers a second
    usd_per_request: float
    machines: int = 1000  # there are
    most_per_s: float = inf  # that the endpoint lets through
    spread: float = 1.0  # interval of the dollars per request, up and down
    slower: float = 1.0  # interval of the latency, up and down

    def plans(self, rate: float) -> Sequence[Plan]:
        needed = ceil(rate / self.per_machine_per_s - 1e-9)
        rented = plan("machine", needed * self.machine_usd_per_hour, needed, self.slower)
        usd, by = self.usd_per_request, self.spread
        known = Estimate(value=usd, low=usd / by, high=usd * by, confidence=0.95, inputs=50)
        called = plan("endpoint", 0.0, 1, self.slower, known)
        found = [rented] if needed <= self.machines else []
        return [*found, called] if rate <= self.most_per_s else found

    @property
    def closed_form(self) -> float | None:
        """Machines over calls of an hour, if one machine answers so many; else never."""
        rate = self.machine_usd_per_hour / (3600 * self.usd_per_request)
        return rate if rate <= self.per_machine_per_s else None

    @property
    def for_good(self) -> float:
        """After n machines are full one more stands empty: calls win if they cost less then."""
        each = 3600 * self.usd_per_request * self.per_machine_per_s
        full = ceil(self.machine_usd_per_hour / (each - self.machine_usd_per_hour) - 1e-9) - 1
        return (full + 1) * self.machine_usd_per_hour / (3600 * self.usd_per_request)


def plan(
    name: str, machines_usd: float, copies: int, slower: float, usd: Estimate | None = None
) -> Plan:
    took = Estimate(value=0.1, low=0.1 / slower, high=0.1 * slower, confidence=0.95, inputs=50)
    tier = "cloud" if usd is None else "api"
    calls = None if usd is None else PlanCalls(usd_per_request=usd, per_request={name: Usage()})
    return Plan(
        pipeline="reading",
        configuration=Configuration((("reader", "by", name),)),
        deployment=Deployment(
            placement={"reader": tier}, allocation={"reader": 1.0}, replicas={"reader": copies}
        ),
        demand=(),
        accuracy=Estimate(value=1, low=1, high=1, confidence=0.95, inputs=50),
        latency_s=took,
        cost_usd_per_hour=machines_usd,
        tier_service_s={},
        calls=calls,
    )
