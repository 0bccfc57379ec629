"""Deployed plans whose operators call: what is served, paid and obeyed, by a real server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.store.calls import StoreLeases
from circinus.api.store.engine import connect, migrate
from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.report import ServedBill
from circinus.deploy.runtime.walk import RequestResult
from circinus.deploy.workers.errors import TooManyRequests
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.endpoints import RateLimits, Usage
from circinus.profiler.rate_gate import AsyncRateGate, RateAdmission
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from tests.calls.server import Model, ModelServer, serving_models
from tests.deploy.calling_pipelines import PRICES, URL_VARIABLE
from tests.deploy.remote_tiers import PRICE, hosted, wanted
from tests.deploy.serving import launcher, pids_of, pipeline_of, within

REQUESTS = int(os.environ.get("CIRCINUS_TEST_REQUESTS", "200"))
WHATS = list(PRICES)


READER = Model(price=PRICE, median_s=0.03)


def models(reader: Model = READER) -> dict[str, Model]:
    """The readers of the pipelines; of one that is left out nothing is special."""
    return {"reader": reader, "checker": READER}


class Kept:
    """Keeps bills in memory: a `BillMemory`."""

    def __init__(self) -> None:
        self.bills: dict[str, ServedBill] = {}

    def keep(self, run: str, query_id: str, bill: ServedBill) -> None:
        self.bills[f"{query_id}/{run}"] = bill


class Serving:
    """An orchestrator with one deployment that calls a server of models."""

    def __init__(
        self,
        logs: Path,
        chosen: DesiredDeployment,
        limits: RateLimits | None = None,
        gate: CallGate | None = None,
    ) -> None:
        self.kept = Kept()
        self.chosen = chosen
        self.orchestrator = Orchestrator(
            hosted(reader=limits or RateLimits()),
            launcher(logs),
            pipeline_of,
            PlanAhead(),
            SystemClock(),
            gate=gate or UnlimitedCalls(),
            bills=self.kept,
        )

    async def __aenter__(self) -> Serving:
        await self.orchestrator.apply({"q": self.chosen})
        status = self.orchestrator.status("q")
        assert status.phase is DeploymentPhase.SERVING, status.reason
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.orchestrator.close()

    async def ask(self, what: str = "tin", timeout_s: float = 20.0) -> RequestResult:
        return await self.orchestrator.request("q", what, within(timeout_s))

    async def many(self, count: int, at_once: int) -> list[RequestResult]:
        turns = asyncio.Semaphore(at_once)

        async def one(number: int) -> RequestResult:
            async with turns:
                return await self.ask(WHATS[number % len(WHATS)])

        return list(await asyncio.gather(*map(one, range(count))))

    @property
    def bill(self) -> ServedBill:
        bill = self.orchestrator._serving["q"].dispatcher.bill()
        assert bill is not None
        return bill


def test_a_call_that_fails_for_good_fails_the_request_with_its_cause_and_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("failing", "read")) as serving:
            with pytest.raises(OperatorFailed, match="refuse failed: ValueError: cannot take"):
                await serving.ask()
            assert serving.bill.total.usd == pytest.approx(server.charged_usd, rel=1e-12)
            assert (serving.bill.answered, serving.bill.failed) == (0, 1)
            assert serving.bill.usd_per_1000_requests is None

    with serving_models(models()) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))
        assert server.charged_usd > 0


def test_what_is_refused_for_good_keeps_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("doubting", "read", "check")) as serving:
            with pytest.raises(OperatorFailed, match=r"check failed: HTTPStatusError: .*404"):
                await serving.ask()

    with serving_models({"reader": models()["reader"]}) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))


class ClosedGate:
    """Permits once, and then never."""

    def __init__(self) -> None:
        self.given = 0
        self.settled: list[Mapping[str, Usage]] = []

    async def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        self.given += 1
        if self.given > 1:
            await asyncio.Event().wait()
        return Permit(operator=operator, most=most)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        self.settled.append(used)


def test_a_request_without_leave_in_time_is_told_to_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        gate = ClosedGate()
        chosen = wanted("reading", "read", deadline_s=0.5)
        async with Serving(tmp_path, chosen, gate=gate) as serving:
            await serving.ask()
            with pytest.raises(TooManyRequests, match="cannot serve it before its deadline"):
                await serving.ask()
            assert len(gate.settled) == 1
            assert len(server.calls) == 1
            figures = serving.orchestrator.reports()["q"].queues["hosted"]
            assert (figures.busy, figures.turned_away) == ((), 1)

    with serving_models(models()) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))


def test_all_limits_are_kept_and_what_cannot_be_in_time_by_them_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has the limits that the plan was told: it never refuses."""
    limits = RateLimits(requests_per_minute=10, concurrent=2)

    async def scene(server: ModelServer) -> None:
        engine = connect(f"sqlite:///{tmp_path / 'limits.sqlite3'}")
        migrate(engine)
        admission = RateAdmission(
            limits={"reader": limits},
            leases=StoreLeases(engine),
            clock=SystemClock(),
            holder="serving",
        )
        chosen = wanted("reading", "read", deadline_s=4.0)
        async with (
            AsyncRateGate(admission) as gate,
            Serving(tmp_path, chosen, limits=limits, gate=gate) as serving,
        ):
            asked = [asyncio.create_task(serving.ask()) for _ in range(14)]
            results = await asyncio.gather(*asked, return_exceptions=True)
            answers = [each for each in results if isinstance(each, RequestResult)]
            refused = [each for each in results if isinstance(each, TooManyRequests)]
            assert (len(answers), len(refused)) == (10, 4)
            assert all(error.retry_after_s > 0 for error in refused)
            assert serving.bill.answered == 10
        engine.dispose()

    with serving_models(models(replace(READER, limits=limits, median_s=0.05))) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))
        assert server.refused == 0
        assert server.most_in_a_window("reader")[0] == 10


def test_a_call_whose_client_went_away_is_in_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("reading", "read")) as serving:
            asking = asyncio.create_task(serving.ask())
            await asyncio.sleep(0.3)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert server.calls == []
            assert serving.bill.total.calls == 0
        (bill,) = serving.kept.bills.values()
        assert bill.total.usd == pytest.approx(server.charged_usd, rel=1e-12)
        assert (bill.total.calls, bill.answered) == (1, 0)

    with serving_models(models(replace(READER, median_s=1.0, spread=0.01))) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))
        assert len(server.calls) == 1


def test_calls_that_fail_on_the_way_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("reading", "read")) as serving:
            answers = [each for each in await serving.many(40, 8) if each.output]
            assert len(answers) == 40
            tried = sum(answer.used["read"].calls for answer in answers)
            assert tried == len(server.calls) > 40

    # Of 40 requests with four attempts each, none fails for good with probability 0.99 or more.
    with serving_models(models(replace(READER, failing=0.1))) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))


def test_an_endpoint_that_asks_to_wait_is_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes one call at a time, and nobody told the plan so."""

    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("reading", "read")) as serving:
            answers = await serving.many(2, 2)
            assert {answer.output for answer in answers} <= set(PRICES.values())
            assert server.refused >= 1
            assert max(answer.used["read"].calls for answer in answers) > 1
            assert serving.bill.total.usd == pytest.approx(server.charged_usd, rel=1e-12)
            assert serving.bill.total.calls == len(server.calls) + server.refused

    with serving_models(
        models(replace(READER, limits=RateLimits(concurrent=1), median_s=0.2, spread=0.01))
    ) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))


def test_two_operators_that_call_do_so_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("doubting", "read", "check")) as serving:
            answer = await serving.ask()
            assert answer.output == ["12", "12"] or answer.output == {"read": "12", "check": "12"}
            assert answer.used.keys() == {"read", "check"}
            first, second = server.calls
            assert max(first.at, second.at) < min(first.until, second.until)

    with serving_models(
        {name: replace(model, median_s=0.4) for name, model in models().items()}
    ) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))


def test_a_caller_that_is_killed_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("reading", "read")) as serving:
            status = serving.orchestrator.status("q")
            specs = {each.spec.key.tier: each for each in status.instances}
            assert specs["hosted"].spec.calls_at_once == 32
            pid = specs["hosted"].running.pid if specs["hosted"].running else None
            assert pid in pids_of(serving.orchestrator, "q")
            os.kill(pid or 0, 9)
            assert (await serving.ask()).output in PRICES.values()

    with serving_models(models()) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))


def test_dollars_billed_are_those_that_the_server_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ModelServer) -> None:
        async with Serving(tmp_path, wanted("reading", "read")) as serving:
            assert server.calls == []  # nothing was called to be warm
            answers = await serving.many(REQUESTS, 16)
            assert sum(answer.usd for answer in answers) == pytest.approx(
                server.charged_usd, rel=1e-9
            )
            bill = serving.bill
        (kept,) = serving.kept.bills.values()
        assert kept == bill
        assert bill.total.usd == pytest.approx(server.charged_usd, rel=1e-9)
        assert bill.total.calls == bill.answered == len(server.calls) == REQUESTS
        assert bill.unsure == bill.failed == 0
        assert bill.total.input_tokens == sum(call.input_tokens for call in server.calls)

    with serving_models(models()) as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        asyncio.run(scene(server))
