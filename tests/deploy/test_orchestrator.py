from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circinus.deploy.local.cgroups import Cgroups, available
from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.learning import Learnt
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost, TooManyRequests
from circinus.deploy.workers.shares import Enforcement
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Unavailable, Violation
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload, encode
from circinus.pipelines.model.tiers import Tier
from tests.deploy.serving import (
    DUTY_CYCLES,
    LOCAL,
    desired,
    is_alive,
    own_cgroups,
    pids_of,
    plan,
    serving,
    tiny,
    within,
)

THREE_TIERS = {"double": "device", "add": "cloud", "describe": "device"}


def test_a_query_that_is_not_deployed_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {}) as orchestrator:
            with pytest.raises(InvalidInput, match="query must be deployed, got 'q'"):
                await orchestrator.request("q", 1, within(1.0))
            with pytest.raises(InvalidInput, match="query must be deployed, got 'q'"):
                orchestrator.status("q")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("strange", "reason"),
    [
        (desired("nap", plan("nap", {"nap": "moon"})), "tier must be among cloud, got 'moon'"),
        (
            replace(desired("nap"), pipeline_reference="tests.deploy.tiny_pipelines:gone"),
            "pipeline must be importable",
        ),
    ],
)
def test_a_plan_that_does_not_fit_is_told_and_changes_nothing_for_others(
    tmp_path: Path, strange: DesiredDeployment, reason: str
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("echo")}) as orchestrator:
            before = pids_of(orchestrator, "q")
            await orchestrator.apply({"p": strange, "q": desired("echo")})
            told = orchestrator.status("p")
            assert told.phase is DeploymentPhase.FAILED
            assert reason in (told.reason or "")
            assert pids_of(orchestrator, "q") == before
            assert (await orchestrator.request("q", 1, within(5.0))).output == 1

    asyncio.run(scenario())


def test_a_deployment_that_cannot_start_is_told_with_its_log_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        good = desired("echo")
        broken = replace(desired("echo"), pipeline_reference="no_such_module:pipeline")
        # The pipeline is known here, but the worker process cannot import its module.
        async with serving(
            tmp_path, {"good": good}, pipelines=lambda _: tiny("echo")
        ) as orchestrator:
            await orchestrator.apply({"good": good, "broken": broken})
            status = orchestrator.status("broken")
            assert status.phase is DeploymentPhase.FAILED
            assert "exit code 2" in (status.reason or "")
            assert "No module named 'no_such_module'" in (status.reason or "")
            assert orchestrator.status("good").phase is DeploymentPhase.SERVING
            with pytest.raises(Unavailable, match="query broken is failed"):
                await orchestrator.request("broken", 1, within(1.0))
            await orchestrator.apply({"good": good})
            with pytest.raises(InvalidInput, match="must be deployed"):
                orchestrator.status("broken")

    asyncio.run(scenario())


def test_a_chain_over_tiers_gives_the_pipelines_output_and_accounts_for_its_time(
    tmp_path: Path,
) -> None:
    chosen = plan("arithmetic", THREE_TIERS, configuration={"add": {"amount": 10}})

    async def scenario() -> None:
        async with serving(
            tmp_path, {"q": desired("arithmetic", chosen, sample=1)}, LOCAL
        ) as orchestrator:
            result = await orchestrator.request("q", 5, within(5.0))
            assert isinstance(result.output, dict)
            assert result.output["value"] == 20
            assert set(result.operator_s) == {"double", "add", "describe"}
            # device - edge - cloud and back: 2 x (2 ms + 5 ms), and a few bytes.
            assert result.transfer_s == pytest.approx(0.014, abs=1e-3)
            parts = result.path_operator_s + result.waiting_s + result.transfer_s
            assert result.latency_s == pytest.approx(parts + result.overhead_s)
            assert result.overhead_s > 0
            assert result.tier_s["device"] == pytest.approx(
                result.operator_s["double"] + result.operator_s["describe"]
            )
            status = orchestrator.status("q")
            assert status.phase is DeploymentPhase.SERVING
            assert status.report is not None
            assert (status.report.answered, status.report.failed) == (1, 0)
            assert status.report.answers.latency_s.tolist() == [result.latency_s]

    asyncio.run(scenario())


PAYLOADS: list[Payload] = [
    None,
    True,
    -7,
    0.1,
    "text \N{SNOWMAN}",
    b"\x00\xff",
    np.arange(12, dtype=np.float32).reshape(3, 4),
    [1, [b"x", {"$dollar": np.array(["a", "bc"])}]],
    b"x" * 6_000_000,  # larger than gRPC takes by default
]


def test_every_kind_of_payload_travels(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("echo")}) as orchestrator:
            for payload in PAYLOADS:
                result = await orchestrator.request("q", payload, within(10.0))
                assert encode(result.output) == encode(payload)

    asyncio.run(scenario())


def test_an_operator_that_prints_a_lot_does_not_block(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("chatty")}) as orchestrator:
            assert (await orchestrator.request("q", 7, within(5.0))).output == 7
        (log,) = tmp_path.iterdir()
        assert log.read_text().count("an operator prints") == 10_000

    asyncio.run(scenario())


def test_an_operator_that_fails_is_named_and_the_instance_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        wanted = {"f": desired("fail"), "n": desired("nonsense")}
        async with serving(tmp_path, wanted) as orchestrator:
            before = pids_of(orchestrator, "f")
            for _ in range(2):
                with pytest.raises(OperatorFailed, match="fail failed: ValueError: cannot take 3"):
                    await orchestrator.request("f", 3, within(5.0))
            with pytest.raises(OperatorFailed, match="nonsense failed: payload must be"):
                await orchestrator.request("n", 3, within(5.0))
            report = orchestrator.status("f").report
            assert report is not None
            assert (report.answered, report.failed, report.latency()) == (0, 2, {})
            assert pids_of(orchestrator, "f") == before

    asyncio.run(scenario())


def test_a_deadline_ends_a_request_and_the_instance_is_used_again_when_it_is_done(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("nap")}) as orchestrator:
            with pytest.raises(DeadlineExceeded, match=r"deadline of 0\.1 s passed while nap ran"):
                await orchestrator.request("q", 0.4, within(0.1))
            with pytest.raises(DeadlineExceeded, match="nap waited for an instance of tier cloud"):
                await orchestrator.request("q", 0.0, within(0.05))  # still at the first one
            result = await orchestrator.request("q", 0.0, within(5.0))
            assert result.output == 0.0
            assert result.waiting_s > 0.05

    asyncio.run(scenario())


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_timeout_must_be_positive(tmp_path: Path, timeout_s: float) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("echo")}) as orchestrator:
            with pytest.raises(InvalidInput, match="timeout_s must be finite and > 0"):
                await orchestrator.request("q", 1, within(timeout_s))

    asyncio.run(scenario())


def test_a_full_queue_turns_requests_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("nap")}, queue_limit=2) as orchestrator:
            burst = [orchestrator.request("q", 0.1, within(5.0)) for _ in range(5)]
            results = await asyncio.gather(*burst, return_exceptions=True)
            refused = [r for r in results if isinstance(r, TooManyRequests)]
            assert len(refused) == 2  # one runs, two wait
            assert "2 requests already wait for tier cloud" in str(refused[0])
            assert all(r.retry_after_s >= 0 for r in refused)
            assert sum(not isinstance(r, BaseException) for r in results) == 3

    asyncio.run(scenario())


def test_what_a_source_finds_wrong_is_the_client_s_fault_and_later_ones_the_pipeline_s(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        wanted = {"q": desired("refuse"), "later": desired("refuse_later")}
        async with serving(tmp_path, wanted) as orchestrator:
            with pytest.raises(InvalidInput) as refused:
                await orchestrator.request("q", 3, within(5.0))
            assert refused.value.violations == (Violation("picture.width", "must be even", "3"),)
            with pytest.raises(
                OperatorFailed, match=r"second failed: picture\.width must be even"
            ):
                await orchestrator.request("later", 3, within(5.0))

    asyncio.run(scenario())


async def _under_overload(orchestrator: Orchestrator, *, serve_late: bool) -> list[object]:
    """Send requests of 0.1 s to one instance, four times as fast as it serves them."""
    for _ in range(3):  # what they take is learnt
        await orchestrator.request("q", 0.1, within(5.0))
    terms = RequestTerms(timeout_s=20.0, serve_late=serve_late)
    load = []
    for _ in range(60):
        load.append(asyncio.create_task(orchestrator.request("q", 0.1, terms)))
        await asyncio.sleep(0.025)
    return list(await asyncio.gather(*load, return_exceptions=True))


@pytest.mark.parametrize("serve_late", [False, True])
def test_what_cannot_be_in_time_is_turned_away_unless_late_answers_are_wanted(
    tmp_path: Path, serve_late: bool
) -> None:
    wanted = replace(desired("nap"), deadline_s=0.4)

    async def scenario() -> None:
        async with serving(tmp_path, {"q": wanted}) as orchestrator:
            answers = await _under_overload(orchestrator, serve_late=serve_late)
        answered = [a.latency_s for a in answers if isinstance(a, RequestResult)]
        refused = [a for a in answers if isinstance(a, TooManyRequests)]
        assert len(answered) + len(refused) == 60
        in_time = sum(latency_s <= 0.4 for latency_s in answered)
        if serve_late:  # first come, first served: all but the first few wait longer and longer
            assert not refused
            assert in_time < 15
        else:  # 1.5 s serve 15 of them
            assert in_time >= 8
            assert len(refused) >= 20

    asyncio.run(scenario())


def test_a_deadline_that_changes_holds_for_the_plan_that_serves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("nap")}) as orchestrator:
            before = pids_of(orchestrator, "q")
            await orchestrator.apply({"q": replace(desired("nap"), deadline_s=0.4)})
            assert pids_of(orchestrator, "q") == before
            answers = await _under_overload(orchestrator, serve_late=False)
            assert any(isinstance(answer, TooManyRequests) for answer in answers)

    asyncio.run(scenario())


class Notebook:
    """A memory in this process; may refuse to write."""

    def __init__(self) -> None:
        self.pages: dict[str, Learnt] = {}
        self.full = False

    def recall(self, plan_id: str) -> Learnt:
        return self.pages.get(plan_id, {})

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        if self.full:
            raise OSError("no space")
        self.pages[plan_id] = learnt


def test_what_was_learnt_of_latencies_is_known_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        memory = Notebook()
        for life in (1, 2):
            async with serving(tmp_path, {"q": desired("nap")}, memory=memory) as orchestrator:
                for _ in range(3):
                    await orchestrator.request("q", 0.05, within(5.0))
                figures = orchestrator.reports()["q"].queues["cloud"]
                assert figures.answered == 3
                # first the plan's prediction of nothing, then what was learnt before the restart
                assert (figures.predicted_s > 0.14) == (life == 2)
            (learnt,) = memory.pages[plan("nap").id]["cloud"].values()
            assert learnt["line"]["count"] == 3 * life  # type: ignore[index] # as dumped

    asyncio.run(scenario())


def test_a_memory_that_cannot_keep_does_not_keep_the_deployment_from_ending(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        memory = Notebook()
        memory.full = True
        async with serving(tmp_path, {"q": desired("echo")}, memory=memory) as orchestrator:
            assert (await orchestrator.request("q", 1, within(5.0))).output == 1

    asyncio.run(scenario())
    assert own_cgroups() == []


def test_replicas_share_the_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        chosen = plan("nap", replicas={"cloud": 2})
        async with serving(tmp_path, {"q": desired("nap", chosen)}) as orchestrator:
            burst = [orchestrator.request("q", 0.2, within(5.0)) for _ in range(2)]
            results = await asyncio.gather(*burst)
            assert max(r.latency_s for r in results) < 0.38  # one after the other: 0.4

    asyncio.run(scenario())


def test_a_worker_that_batches_gets_as_many_requests_at_once_as_it_declares(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        chosen = plan("batching", {"meet": "cloud", "after": "edge"})
        async with serving(tmp_path, {"q": desired("batching", chosen)}, LOCAL) as orchestrator:
            await orchestrator.request("q", False, within(10.0))  # its answer declares it
            both = [orchestrator.request("q", True, within(10.0)) for _ in range(2)]
            assert [result.output for result in await asyncio.gather(*both)] == [True, True]
            figures = orchestrator.reports()["q"].queues
            assert (figures["cloud"].idle, figures["edge"].idle) == (2, 1)

    asyncio.run(scenario())


async def _cancelled(orchestrator: Orchestrator) -> None:
    request = asyncio.create_task(orchestrator.request("q", 1.0, within(60.0)))
    while not orchestrator.reports()["q"].queues["slow"].busy:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # on its way, at work or in the wait that stands for speed
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def _too_late(orchestrator: Orchestrator) -> None:
    with pytest.raises(DeadlineExceeded):
        await orchestrator.request("q", 1.0, within(0.3))


@pytest.mark.parametrize("ended", [_cancelled, _too_late])
def test_a_worker_gives_up_what_nobody_waits_for(
    tmp_path: Path, ended: Callable[[Orchestrator], Awaitable[None]]
) -> None:
    slow = Infrastructure(
        name="slow", tiers=(Tier(name="slow", machines=1, speed_factor=0.02, emulated=True),)
    )

    async def scenario() -> None:
        wanted = {"q": desired("nap", plan("nap", {"nap": "slow"}))}
        async with serving(tmp_path, wanted, slow) as orchestrator:
            await ended(orchestrator)  # left alone it would take 50 s
            assert (await orchestrator.request("q", 0.0, within(30.0))).output == 0.0

    asyncio.run(scenario())


def test_branches_on_unlike_tiers_run_at_the_same_time(tmp_path: Path) -> None:
    chosen = plan("fork", {"left": "device", "right": "cloud", "join": "cloud"})

    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("fork", chosen)}, LOCAL) as orchestrator:
            result = await orchestrator.request("q", 0.1, within(5.0))
            assert result.output == {"left": 0.1, "right": 0.1}
            # left takes 0.4 s at a quarter of the speed; the path leads over it.
            assert result.operator_s["left"] == pytest.approx(0.4, rel=0.2)
            assert result.path_operator_s == pytest.approx(0.4, rel=0.2)
            assert result.latency_s < 0.49  # one after the other: 0.5

    asyncio.run(scenario())


def test_a_killed_worker_loses_no_request_that_has_time_and_is_started_again(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        chosen = plan("nap", replicas={"cloud": 2})
        async with serving(tmp_path, {"q": desired("nap", chosen)}) as orchestrator:
            victim = pids_of(orchestrator, "q")[0]
            load = [
                asyncio.create_task(orchestrator.request("q", 0.1, within(10.0)))
                for _ in range(10)
            ]
            await asyncio.sleep(0.15)
            os.kill(victim, signal.SIGKILL)
            results = await asyncio.gather(*load)
            assert [r.output for r in results] == [0.1] * 10
            assert sum(r.retries for r in results) == 1
            await until_serving(orchestrator, "q")
            status = orchestrator.status("q")
            assert sum(i.restarts for i in status.instances) == 1
            assert {i.ended for i in status.instances} == {None, "killed by SIGKILL"}
            assert victim not in pids_of(orchestrator, "q")

    asyncio.run(scenario())


def test_a_request_lost_twice_is_answered_with_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("nap")}) as orchestrator:
            request = asyncio.create_task(orchestrator.request("q", 5.0, within(20.0)))
            await asyncio.sleep(0.1)
            (first,) = pids_of(orchestrator, "q")
            os.kill(first, signal.SIGKILL)
            await until_restarted(orchestrator, "q")
            await asyncio.sleep(0.2)  # the request is with the new instance now
            (second,) = pids_of(orchestrator, "q")
            os.kill(second, signal.SIGKILL)
            with pytest.raises(InstanceLost, match="was lost"):
                await request

    asyncio.run(scenario())


def test_a_new_plan_takes_over_without_losing_requests(tmp_path: Path) -> None:
    old = plan("arithmetic", configuration={"add": {"amount": 1}})
    new = plan("arithmetic", configuration={"add": {"amount": 10}})

    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("arithmetic", old)}) as orchestrator:
            before = pids_of(orchestrator, "q")
            change = asyncio.create_task(orchestrator.apply({"q": desired("arithmetic", new)}))
            values: list[Payload] = []
            while not change.done():
                result = await orchestrator.request("q", 1, within(5.0))
                assert isinstance(result.output, dict)
                values.append(result.output["value"])
                await asyncio.sleep(0.005)
            switch = values.index(12) if 12 in values else len(values)
            assert values == [3] * switch + [12] * (len(values) - switch)
            after = await orchestrator.request("q", 1, within(5.0))
            assert isinstance(after.output, dict)
            assert after.output["value"] == 12
            assert orchestrator.status("q").plan_id == new.id
            assert not any(is_alive(pid) for pid in before)

    asyncio.run(scenario())


def test_stopping_leaves_no_process_and_no_cgroup(tmp_path: Path) -> None:
    async def scenario() -> None:
        chosen = plan(
            "arithmetic",
            THREE_TIERS,
            shares={"device": 0.5, "cloud": 0.25},
            configuration={"add": {"amount": 1}},
        )
        wanted = {"q": desired("arithmetic", chosen)}
        async with serving(tmp_path, wanted, LOCAL, cgroups=available()) as orchestrator:
            pids = pids_of(orchestrator, "q")
            assert len(pids) == 2
            if isinstance(available(), Cgroups):
                assert len(own_cgroups()) == 2
            task = asyncio.create_task(orchestrator.request("q", 1, within(5.0)))
            await task
            await orchestrator.apply({})
            with pytest.raises(InvalidInput, match="must be deployed"):
                orchestrator.status("q")
        assert not any(is_alive(pid) for pid in pids)
        assert own_cgroups() == []

    asyncio.run(scenario())


def test_closing_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        chosen = plan("echo", shares={"cloud": 0.5}, replicas={"cloud": 2})
        async with serving(tmp_path, {}, cgroups=available()) as orchestrator:
            task = asyncio.create_task(orchestrator.apply({"q": desired("echo", chosen)}))
            await asyncio.sleep(0.1)
            assert orchestrator.status("q").phase is DeploymentPhase.STARTING
            await orchestrator.close()
            await task
            assert own_cgroups() == []
            with pytest.raises(InvalidInput, match="must be deployed"):
                orchestrator.status("q")

    asyncio.run(scenario())


ENFORCEMENTS = [
    pytest.param(False, Enforcement.DUTY_CYCLE, id="duty cycle"),
    pytest.param(True, Enforcement.CGROUP, id="cgroup"),
]


@pytest.mark.parametrize(("by_cgroup", "expected"), ENFORCEMENTS)
@pytest.mark.parametrize("burn_s", [0.03, 0.0008])
def test_half_a_machine_takes_twice_as_long(
    tmp_path: Path, by_cgroup: bool, expected: Enforcement, burn_s: float
) -> None:
    place = available() if by_cgroup else DUTY_CYCLES
    if by_cgroup and isinstance(place, str):
        pytest.skip(place)

    async def scenario() -> None:
        chosen = plan("burn", shares={"cloud": 0.5})
        wanted = {"q": desired("burn", chosen)}
        async with serving(tmp_path, wanted, cgroups=place) as orchestrator:
            (instance,) = orchestrator.status("q").instances
            assert instance.running is not None
            assert instance.running.enforcement is expected
            assert instance.running.note == ("" if by_cgroup else DUTY_CYCLES)
            seconds = [
                (await orchestrator.request("q", burn_s, within(10.0))).operator_s["burn"]
                for _ in range(15)
            ]
            # Other work on the machine can only make it slower: the share bounds the median from
            # below, and the luckiest request shows that nothing beyond the share is taken away.
            assert float(np.median(seconds)) > 1.8 * burn_s
            assert min(seconds) < 6 * burn_s

    asyncio.run(scenario())


def test_half_the_speed_takes_twice_as_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        chosen = plan("nap", {"nap": "edge"})
        async with serving(tmp_path, {"q": desired("nap", chosen)}, LOCAL) as orchestrator:
            result = await orchestrator.request("q", 0.1, within(5.0))
            assert 0.2 <= result.operator_s["nap"] < 0.6

    asyncio.run(scenario())


async def until_serving(orchestrator: Orchestrator, query: str) -> None:
    async with asyncio.timeout(15):
        while orchestrator.status(query).phase is not DeploymentPhase.SERVING:
            await asyncio.sleep(0.02)


async def until_restarted(orchestrator: Orchestrator, query: str) -> None:
    async with asyncio.timeout(15):
        while not all(i.up and i.restarts for i in orchestrator.status(query).instances):
            await asyncio.sleep(0.02)


def test_calls_that_come_together_run_together_and_one_that_fails_fails_alone(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("gathering")}) as orchestrator:
            await orchestrator.request("q", 1, within(30.0))  # says how many it takes
            inputs: list[Payload] = [1, 2, 3, None, 5, 6, 7, 8]
            answers = await asyncio.gather(
                *(orchestrator.request("q", each, within(30.0)) for each in inputs),
                return_exceptions=True,
            )
            failed = [each for each in answers if isinstance(each, BaseException)]
            assert [type(each) for each in failed] == [OperatorFailed]
            outputs = [each.output for each in answers if isinstance(each, RequestResult)]
            values = [each["value"] for each in outputs if isinstance(each, dict)]
            assert values == [each for each in inputs if each is not None]

    asyncio.run(scenario())
