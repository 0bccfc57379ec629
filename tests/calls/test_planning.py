"""Planning where operators call: money ends the search with what was found, and is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from circinus.api.bootstrap.execution import plan_here
from circinus.api.bootstrap.planning import PriorWork, plan_query
from circinus.api.settings import ExecutorChoice, ExecutorKind
from circinus.api.store.interrupted import FileLedger
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import CallPrice, Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.profiler.journal import MemoryJournal
from tests.calls.chatting import CHATTING, endpoints, models
from tests.calls.chatting import pipeline as chatting
from tests.calls.server import ModelServer, serving_models

COUNT = 40
assert chatting.examples is not None
DATA = chatting.examples(COUNT, 0)


def tiers(*called: Endpoint) -> Infrastructure:
    return Infrastructure(
        name="with-models",
        tiers=(
            Tier(name="device", dedicated=True, price_usd_per_hour=0.36),
            Tier(name="models", endpoints=called, machines=0),
        ),
        links=(Link(between=("device", "models"), bandwidth_bytes_per_s=1e7, delay_s=0.001),),
    )


def query(usd: float | None) -> Query:
    limits = PlanningLimits(profiling_usd=usd, response_s=60.0)
    return Query(pipeline="chatting", slo=Slo(accuracy=0.9, latency_s=5.0), limits=limits, seed=0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with serving_models(models(median_s=0.002)) as made:
        monkeypatch.setenv("CHAT_URL", made.url)
        yield made


def planned(usd: float | None, prior: PriorWork | None = None) -> PlanningResult:
    return plan_query(query(usd), tiers(*endpoints()), chatting, DATA, prior=prior)


def test_endpoints_without_bounds_are_refused_before_anything_is_called(
    server: ModelServer,
) -> None:
    free = [Endpoint(name=name, price=CallPrice(call_usd=0.1)) for name in ("small", "large")]
    dear = Endpoint(name="large", price=CallPrice(output_usd_per_million=1.0))
    told = "endpoint large.most_output_tokens must be given while limits.profiling_usd is"
    with pytest.raises(InvalidInput, match=re.escape(told)):
        plan_query(query(1.0), tiers(free[0], dear), chatting, DATA)
    assert server.calls == []


def test_an_executor_whose_operators_cannot_call_is_refused(server: ModelServer) -> None:
    choice = ExecutorChoice(kind=ExecutorKind.WORKER, detail="device")
    told = "executor must be pool or in-process: operators of chatting call endpoints"
    with pytest.raises(InvalidInput, match=re.escape(told)):
        plan_here(query(1.0), tiers(*endpoints()), chatting, DATA, executor=choice)
    assert server.calls == []


def test_money_ends_the_search_with_what_was_found(server: ModelServer) -> None:
    whole = planned(None)
    assert whole.outcome is PlanningOutcome.FEASIBLE
    all_usd = server.charged_usd
    before = len(server.calls)
    cut = planned(all_usd / 3)
    assert cut.stopped_because.startswith("limit profiling_usd reached")
    assert cut.failures == ()
    paid = sum(call.usd for call in server.calls[before:])
    assert 0.5 * all_usd / 3 < paid <= all_usd / 3


def test_no_money_at_all_calls_nothing(server: ModelServer) -> None:
    assert planned(0.0).stopped_because.startswith("limit profiling_usd reached")
    assert server.calls == []


def test_planning_that_is_started_again_keeps_what_was_paid(
    server: ModelServer, tmp_path: Path
) -> None:
    journal, path = MemoryJournal(), tmp_path / "plan.paid"
    first = planned(0.02, PriorWork(journal=journal, ledger=FileLedger(path)))
    calls = len(server.calls)
    assert 0 < server.charged_usd <= 0.02
    again = planned(0.02, PriorWork(journal=journal, ledger=FileLedger(path)))
    assert again.stopped_because.startswith("limit profiling_usd reached")
    assert (again.measured, again.inputs) == (first.measured, first.inputs)
    assert server.charged_usd <= 0.02
    assert len(server.calls) - calls <= 1  # what was not settled to its largest cost


@pytest.mark.parametrize("reference", [CHATTING, ""], ids=["fresh", "forked"])
def test_a_pool_that_is_wider_than_the_machine_stays_below_the_cap(
    server: ModelServer, reference: str
) -> None:
    choice = ExecutorChoice(workers=1, calling=6)
    result = plan_here(
        query(0.05), tiers(*endpoints()), chatting, DATA, reference=reference, executor=choice
    )
    assert 0.02 < server.charged_usd <= 0.05
    assert result.measured > 0
    assert result.failures == ()


def test_the_bill_tells_what_calls_of_each_operator_cost(server: ModelServer) -> None:
    paid = planned(0.02).bill.paid
    (of_reader,) = paid.calls
    assert (of_reader.operator, of_reader.open_usd) == ("reader", 0.0)
    assert of_reader.calls == len(server.calls)
    assert of_reader.output_tokens == sum(call.output_tokens for call in server.calls)
    assert of_reader.usd == pytest.approx(server.charged_usd)
    assert paid.usd == pytest.approx(server.charged_usd)  # machines only waited
