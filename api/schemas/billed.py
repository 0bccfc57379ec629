"""What serving a query used of endpoints, as the service shows it."""

from __future__ import annotations

from pydantic import Field

from circinus.api.schemas.base import View
from circinus.deploy.runtime.served_bill import ServedBill
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.plan import Plan


class UsageView(View):
    """What was used of endpoints."""

    calls: float = Field(default=0.0, description="Attempts, those that failed included.")
    input_tokens: float = Field(default=0.0, description="Tokens read, cached ones included.")
    cached_tokens: float = Field(default=0.0, description="Of these, those read before.")
    output_tokens: float = Field(default=0.0, description="Tokens written.")
    usd: float = Field(default=0.0, description="US dollars.")


class CalledView(UsageView):
    """What one operator used of one endpoint."""

    operator: str = Field(description="Which calls.")
    endpoint: str = Field(description="What it calls.")


class ServedBillView(View):
    """What the requests to one of a query's plans used of endpoints, to within a few seconds."""

    plan_id: str = Field(description="Which plan.")
    answered: int = Field(description="Requests that were answered.")
    failed: int = Field(description="Requests that got an error; those refused are left out.")
    total: UsageView = Field(description="What was used in all.")
    called: list[CalledView] = Field(description="The same by operator and endpoint.")
    unsure: int = 0
    """Calls that were lost on the way: they are billed as the most that they may have used."""
    usd_per_1000_requests: float | None = None
    """US dollars for 1,000 answers, what failed included; none before the first."""
    predicted_usd_per_1000_requests: float | None = None
    """The same as the plan predicted it; none if the plan is no longer one of the query's."""


def usage_view(used: Usage) -> UsageView:
    """Return what was used as it is shown."""
    return UsageView(**used._asdict())


def served_bill_view(bill: ServedBill, plan: Plan | None) -> ServedBillView:
    """Return a bill as it is shown, beside what its plan predicted; None: it is not known."""
    calls = None if plan is None else plan.calls
    return ServedBillView.of(
        bill,
        total=usage_view(bill.total),
        called=[
            CalledView(operator=operator, endpoint=endpoint, **used._asdict())
            for operator, by_endpoint in sorted(bill.used.items())
            for endpoint, used in sorted(by_endpoint.items())
        ],
        predicted_usd_per_1000_requests=None
        if calls is None
        else 1000 * calls.usd_per_request.value,
    )
