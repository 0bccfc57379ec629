"""What dispatchers are told, and when nobody sends requests any more to what serves no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.serving.replicas import (
    ReplicaReport,
    Replicas,
    replica_reports,
    reports_from_json,
    reports_to_json,
)
from circinus.deploy.runtime.following import AddressedLauncher
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.report import DeploymentReport, LatestAnswers, QueueFigures
from circinus.deploy.runtime.telemetry import ArrivalSample, ServiceSample
from circinus.pipelines.clock import Clock, ManualClock, SystemClock
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.deploy.serving import ONE_TIER, desired, pipeline_of, plan, serving, within

AT_ONCE_S = 2.0


@asynccontextmanager
async def followed(
    folder: Path, *, leaves_s: float = 30.0, clock: Clock | None = None
) -> AsyncIterator[Replicas]:
    """Return what serves a query `q`, for followers."""
    async with serving(folder, {"q": desired("echo")}) as orchestrator:
        found = Replicas(orchestrator, clock or SystemClock(), leaves_s=leaves_s)
        orchestrator.followers = found
        try:
            yield found
        finally:
            found.close()


def idle() -> Orchestrator:
    policy = MinCostMatching()
    return Orchestrator(ONE_TIER, AddressedLauncher(), pipeline_of, policy, SystemClock())


def test_before_it_is_known_what_should_serve_nobody_is_told_that_nothing_does() -> None:
    async def scenario() -> None:
        orchestrator = idle()
        here = Replicas(orchestrator, SystemClock())
        with pytest.raises(Unavailable, match="it is not known yet what should be served"):
            await here.after("", "d", "")
        await here.left()  # holds nothing up
        await orchestrator.apply({})
        told = json.loads(await here.after("", "d", "") or b"")
        assert (told["deployments"], told["awaited"]) == ({}, [])
        here.close()
        with pytest.raises(Unavailable):
            await here.after("", "d", "")

    asyncio.run(scenario())


def test_who_knows_what_serves_is_told_when_it_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(tmp_path) as here:
            told = json.loads(await here.after("", "d", "") or b"")
            assert list(told["deployments"]) == ["q"]
            assert len(told["deployments"]["q"]["addresses"]) == 1
            asking = asyncio.create_task(here.after(told["version"], "d", told["version"]))
            done, _ = await asyncio.wait({asking}, timeout=0.5)
            assert not done
            here.orchestrator.withhold("q")
            document = await asyncio.wait_for(asking, AT_ONCE_S)
            changed = json.loads(document or b"")
            assert changed["deployments"] == {}
            assert changed["version"] != told["version"]

    asyncio.run(scenario())


def test_a_plan_ends_when_the_last_dispatcher_has_left_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(tmp_path) as here:
            first = json.loads(await here.after("", "a", "") or b"")["version"]
            await here.after("", "b", "")
            ending = asyncio.create_task(here.orchestrator.apply({}))

            async def serves_no_more() -> str:
                told = json.loads(await here.after(first, "a", first) or b"")
                assert told["deployments"] == {}
                return str(told["version"])

            latest = await asyncio.wait_for(serves_no_more(), AT_ONCE_S)
            for name in ("a", "b"):
                assert not (await asyncio.wait({ending}, timeout=0.3))[0]
                asking = asyncio.create_task(here.after(latest, name, latest))
                await asyncio.sleep(0.05)
                asking.cancel()
                with suppress(asyncio.CancelledError):
                    await asking
            await asyncio.wait_for(ending, AT_ONCE_S)

    asyncio.run(scenario())


@pytest.mark.parametrize("expected", [0, 1])
def test_who_is_silent_holds_nobody_up_for_long(tmp_path: Path, expected: int) -> None:
    async def scenario() -> None:
        async with followed(tmp_path, leaves_s=0.5) as here:
            here.expected = expected
            if not expected:
                await here.after("", "silent", "")
            await asyncio.wait_for(here.orchestrator.apply({}), AT_ONCE_S)

    asyncio.run(scenario())


def test_reports_are_of_all_who_dispatch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(tmp_path) as here:
            for value in range(3):
                await here.orchestrator.request("q", value, within(5.0))
            theirs = replica_reports(here.orchestrator)  # as if another had answered as many
            await here.after("", "d", "")
            here.note("d", theirs)
            report = here.reports()["q"]
            assert (report.answered, report.failed, len(report.answers)) == (6, 0, 6)
            assert report.spans[0].requests == 6
            assert report.arrivals_per_s == pytest.approx(0.6)
            assert report.queues["cloud"].answered == 6
            status = here.status("q").report
            assert status is not None
            assert (status.answered, len(status.answers)) == (6, 6)
            here.note("d", replica_reports(here.orchestrator, theirs))
            assert here.reports()["q"].answered == 6  # nothing new is nothing more
            here._replicas.clear()
            report = here.reports()["q"]
            assert report.queues["cloud"].answered == 3  # of who is there
            assert (report.answered, len(report.answers)) == (6, 6)  # of all who ever were

    asyncio.run(scenario())


def test_reports_of_another_plan_count_for_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(tmp_path) as here:
            await here.orchestrator.request("q", 1, within(5.0))
            other = plan("echo", shares={"cloud": 0.5})
            await here.orchestrator.apply({"q": desired("echo", other)})
            theirs = replica_reports(here.orchestrator)
            await here.orchestrator.apply({"q": desired("echo")})
            await here.after("", "d", "")
            here.note("d", theirs)
            assert here.reports()["q"].queues == here.orchestrator.reports()["q"].queues
            assert here._answered == {}

    asyncio.run(scenario())


def test_the_service_learns_from_requests_that_others_send(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with followed(tmp_path, clock=clock) as here:
            await here.after("", "d", "")
            one, other = reported([(1.5, 1.0), (0.5, 3.0)]), reported([(1.0, 2.0)])
            here.note("one", {"q": one})
            here.note("other", {"q": other})
            assert sizes(here) == []  # a third may have more of that time to tell
            clock.seconds += 2.0
            here.note("one", {"q": one})  # as if the answer to the report had been lost
            assert sizes(here) == [1.0, 2.0, 3.0]
            assert here.reports()["q"].known_requests == 3
            latencies = here.orchestrator._serving["q"].dispatcher.queues["cloud"].latencies
            assert latencies.mean(("echo", 1.0), "small") == pytest.approx(0.25)
            workload = here.workload("q")
            assert workload is not None
            assert workload.elsewhere_s == {"cloud": pytest.approx(0.5)}

    asyncio.run(scenario())


def sizes(here: Replicas) -> list[float]:
    workload = here.workload("q")
    return [] if workload is None else workload.sizes.tolist()


def reported(requests: Sequence[tuple[float, float]], plan_id: str = "") -> ReplicaReport:
    """What a replica reports first: requests, so many seconds ago, of sizes."""
    rows = tuple((0.0, 0.75, 0.75, 0.5, 0.0, 0.25) for _ in requests)
    report = DeploymentReport(
        plan_id=plan_id or desired("echo").plan.id,
        answered=len(requests),
        answers=LatestAnswers(at=0.0, tiers=("cloud",), rows=rows),
        queues={"cloud": QueueFigures(busy=("a",), late_s=0.5)},
    )
    return ReplicaReport(
        report=report,
        arrivals=tuple(ArrivalSample(ago_s, size, 0) for ago_s, size in requests),
        arrival_count=len(requests),
        services=tuple(ServiceSample("cloud", "echo", 1.0, "small", 0.25) for _ in requests),
        service_count=len(requests),
    )


def test_counts_tell_what_is_new_and_all_of_another_plan_is() -> None:
    before, now = reported([(1.0, 1.0)] * 3), reported([(1.0, 1.0)] * 5)
    assert now.new_since(before) == (2, 0, 2, 2)
    assert before.new_since(now) == (0, 0, 0, 0)  # another process by that name
    assert now.new_since(replace(before, report=replace(before.report, plan_id="other"))) == (
        now.counts
    )
    assert now.new_since(None) == now.counts == (5, 0, 5, 5)


def test_reports_are_read_back_as_they_were_written() -> None:
    reports = {"q": reported([(0.5, 3.0), (0.25, 1.0)], "p")}
    assert reports_from_json(reports_to_json(reports)) == reports


@pytest.mark.parametrize("document", [b"[]", b"{", b'{"q": {"report": {}}}'])
def test_what_is_no_report_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidInput):
        reports_from_json(document)
