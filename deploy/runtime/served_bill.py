"""What serving a query's requests used of endpoints, and where that outlives the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol

from circinus.pipelines.model.endpoints import NOTHING_USED, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBill:
    """What the requests to a plan came to."""

    plan_id: str
    answered: int = 0  # requests
    failed: int = 0  # those that got an error, refused ones left out
    # operator -> endpoint -> what was used of it, by answered requests and others
    used: Mapping[str, Mapping[str, Usage]] = field(default_factory=dict)
    # attempts of which nobody knows what they used: in `used` with the most that they may have
    unsure: int = 0

    @property
    def total(self) -> Usage:
        """What was used in all."""
        each = (used for by_endpoint in self.used.values() for used in by_endpoint.values())
        return reduce(Usage.plus, each, NOTHING_USED)

    @property
    def usd_per_1000_requests(self) -> float | None:
        """US dollars for a thousand answers, what failed included; None: nothing was answered."""
        return self.total.usd / self.answered * 1000 if self.answered else None

    def plus(self, other: ServedBill) -> ServedBill:
        """Return what both came to, as of this one's plan."""
        return ServedBill(
            plan_id=self.plan_id,
            answered=self.answered + other.answered,
            failed=self.failed + other.failed,
            used=used_together(self.used, other.used),
            unsure=self.unsure + other.unsure,
        )


def used_together(
    one: Mapping[str, Mapping[str, Usage]], other: Mapping[str, Mapping[str, Usage]]
) -> dict[str, dict[str, Usage]]:
    """Return what both used, by operator and endpoint."""
    together = {operator: dict(by_endpoint) for operator, by_endpoint in one.items()}
    for operator, by_endpoint in other.items():
        known = together.setdefault(operator, {})
        for endpoint, used in by_endpoint.items():
            known[endpoint] = known.get(endpoint, NOTHING_USED).plus(used)
    return together


class BillMemory(Protocol):
    """Keeps what serving came to. Safe to share between threads.

    Calls may take long: they are made off the event loop. Unavailable if they cannot be answered
    now, which the memory itself logs.
    """

    def keep(self, run: str, query_id: str, bill: ServedBill) -> None:
        """Replace what is kept of a run of a query's plan: from its start until it was ended."""
