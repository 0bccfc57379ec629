"""Operators that call in worker processes: leave is asked of the process that started them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from circinus.deploy.profiling.calls import CallingSide
from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.processes import ForkedPool, ProcessPool
from circinus.deploy.workers.options import endpoints_from
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import Unaffordable
from circinus.pipelines.model.configuration import Configuration
from circinus.profiler.execution import Completed, FailedRun
from circinus.profiler.spending import MemoryLedger, SpendingGate
from tests.calls.chatting import CHATTING, MOST_INPUT, MOST_OUTPUT, PRICES, endpoints, models
from tests.calls.chatting import pipeline as chatting
from tests.calls.server import ModelServer, serving_models

pytestmark = pytest.mark.slow

READER = chatting.by_name["reader"]
SMALL = Configuration((("reader", "model", "small"), ("reader", "hints", 0)))
PRICE = PRICES["small"]
LARGEST_USD = (
    MOST_INPUT * PRICE.input_usd_per_million + MOST_OUTPUT * PRICE.output_usd_per_million
) / 1e6


class Calling:
    """A pool whose operators call a server, and what they may spend."""

    def __init__(self, kind: str, server: ModelServer, limit_usd: float | None = None) -> None:
        self.ledger = MemoryLedger()
        self.gate = SpendingGate(self.ledger, limit_usd)
        calling = CallingSide.of(endpoints(), self.gate)
        settings = ProfilingPoolSettings(workers=1, timeout_s=1.0)
        clock = SystemClock()
        self.pool = (
            ProcessPool(CHATTING, clock, settings, calling=calling)
            if kind == "fresh"
            else ForkedPool(chatting, clock, settings, calling=calling)
        )

    def run(self, inputs: str = "The price of tin is 12. What is the price of tin?") -> object:
        return self.pool.run(READER, inputs, SMALL)

    @property
    def usd(self) -> float:
        return sum(spent.usd for spent in self.ledger.spent().values())


@pytest.fixture(params=["fresh", "forked"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def calling(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    opened: ExitStack,
    limit_usd: float | None = None,
    **how: float,
) -> tuple[Calling, ModelServer]:
    server = opened.enter_context(serving_models(models(**how)))
    monkeypatch.setenv("CHAT_URL", server.url)
    made = Calling(kind, server, limit_usd)
    opened.enter_context(made.pool)
    return made, server


def test_no_call_is_made_that_there_is_no_money_for(
    kind: str, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    made, server = calling(kind, monkeypatch, opened, LARGEST_USD * 0.99)
    for _ in range(2):  # the worker lives on
        with pytest.raises(Unaffordable, match="a call of reader may cost"):
            made.run()
    assert (server.calls, made.usd, made.pool.deaths) == ([], 0.0, [])


def test_a_run_that_calls_is_made_once_and_told_with_its_usage(
    kind: str, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    made, server = calling(kind, monkeypatch, opened)
    done = made.run()
    assert isinstance(done, Completed)
    assert len(server.calls) == 1
    assert done.used.calls == 1
    assert done.used.usd == pytest.approx(server.charged_usd)
    assert made.ledger.spent()["reader"].used == done.used


def test_an_attempt_that_takes_too_long_is_given_up_and_paid_in_full(
    kind: str, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    made, _ = calling(kind, monkeypatch, opened, median_s=3.0, spread=0.0)
    done = made.run()
    assert isinstance(done, FailedRun)
    assert "no answer in 1 s" in done.cause
    assert done.used.usd == pytest.approx(3 * LARGEST_USD)  # attempts
    assert made.usd == pytest.approx(3 * LARGEST_USD)
    assert made.pool.deaths == []


def test_what_a_worker_that_dies_may_have_called_for_is_paid(
    kind: str, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    made, _ = calling(kind, monkeypatch, opened)
    done = made.run("die")
    assert isinstance(done, FailedRun)
    assert done.cause == "the worker process died (signal 9)"
    assert len(made.pool.deaths) == READER.retries.attempts
    assert done.used.usd == pytest.approx(3 * LARGEST_USD)
    assert made.ledger.spent()["reader"].open_usd == 0.0
    assert made.usd == pytest.approx(3 * LARGEST_USD)


def test_failures_of_the_endpoint_are_tried_again_and_paid(
    kind: str, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    made, server = calling(kind, monkeypatch, opened, failing=1.0)
    done = made.run()
    assert isinstance(done, FailedRun)
    assert len(server.calls) == READER.retries.attempts
    assert server.charged_usd <= made.usd


def test_endpoints_reach_a_worker_as_they_are() -> None:
    side = CallingSide.of(endpoints(3.0), SpendingGate(MemoryLedger()))
    decoded = endpoints_from(side.document)  # type: ignore[arg-type]  # a payload
    assert {each.name: each for each in decoded} == side.endpoints


def test_keys_of_endpoints_reach_operators_and_our_own_secrets_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from circinus.deploy.workers.process import operator_environment

    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("CIRCINUS_TOKEN", "ours")
    environment = operator_environment()
    assert environment["OPENAI_API_KEY"] == "sk-1"
    assert "CIRCINUS_TOKEN" not in environment
