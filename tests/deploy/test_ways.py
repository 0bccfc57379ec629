"""Queries go their own ways to what is desired: nobody waits for another, the last word counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.instances import DesiredDeployment, InstanceSpec, RunningInstance
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.shares import Enforcement
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.deploy.serving import ONE_TIER, desired, pids_of, plan, serving, tiny, within

SLOW = replace(desired("echo"), pipeline_reference="tests.deploy.slow_import:pipeline")
TICK_S = 0.002


def test_a_slow_start_delays_no_other_and_is_given_up_when_nobody_wants_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {}, pipelines=lambda _: tiny("echo")) as orchestrator:
            others = set(psutil.Process().children())
            first = asyncio.create_task(orchestrator.apply({"slow": SLOW}))
            await asyncio.sleep(0.5)
            second = asyncio.create_task(
                orchestrator.apply({"slow": SLOW, "quick": desired("echo")})
            )
            await _until_serving(orchestrator, "quick")
            assert (await orchestrator.request("quick", 1, within(5.0))).output == 1
            assert orchestrator.status("slow").phase is DeploymentPhase.STARTING
            quick = {psutil.Process(pid) for pid in pids_of(orchestrator, "quick")}
            starting = set(psutil.Process().children()) - others - quick
            assert len(starting) == 1
            await asyncio.wait_for(orchestrator.apply({"quick": desired("echo")}), 10.0)
            await asyncio.wait_for(asyncio.gather(first, second), 10.0)
            assert not any(process.is_running() for process in starting)
            with pytest.raises(InvalidInput, match="must be deployed"):
                orchestrator.status("slow")

    asyncio.run(scenario())


async def _until_serving(orchestrator: Orchestrator, query: str) -> None:
    async with asyncio.timeout(30.0):
        while query not in orchestrator.serving():
            await asyncio.sleep(0.02)


def test_a_call_that_is_cancelled_stops_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {}) as orchestrator:
            call = asyncio.create_task(orchestrator.apply({"q": desired("echo")}))
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.wait({call})
            await _until_serving(orchestrator, "q")

    asyncio.run(scenario())


@dataclass(eq=False)
class _Counted(RunningInstance):
    counts: Counter[str]
    name: str

    async def stop(self) -> None:
        await asyncio.sleep(0)
        if self.name:
            self.counts[self.name] -= 1
            self.name = ""


@dataclass
class _Erratic:
    """A launcher whose starts take as long, and fail as often, as the plan's share says."""

    running: Counter[str] = field(default_factory=Counter)

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        step = round(spec.share * 100)
        await asyncio.sleep(TICK_S * (step % 4))
        if step >= 40:
            raise LaunchFailed(str(spec.key), "it does not start", "")
        self.running[f"{spec.key.query_id}/{spec.key.plan_id}"] += 1
        return _Counted(
            address="unix:/nowhere",
            enforcement=Enforcement.DUTY_CYCLE,
            counts=self.running,
            name=f"{spec.key.query_id}/{spec.key.plan_id}",
        )


STEPS = (10, 11, 12, 13, 40, 43)  # instant to slow, and two that never start
PLANS = {step: plan("echo", shares={"cloud": step / 100}) for step in STEPS}
WISHES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(STEPS))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(WISHES, st.integers(0, 4)), min_size=1, max_size=6), st.data())
def test_whatever_was_desired_before_only_the_last_word_serves(
    course: list[tuple[dict[str, int], int]], data: st.DataObject
) -> None:
    async def scenario() -> None:
        launcher = _Erratic()
        orchestrator = Orchestrator(
            ONE_TIER, launcher, lambda _: tiny("echo"), MinCostMatching(), SystemClock()
        )
        calls = []
        for wish, pause in course:
            calls.append(asyncio.create_task(orchestrator.apply(_wanted(wish))))
            await asyncio.sleep(TICK_S * pause)
            if data.draw(st.booleans()):
                calls[-1].cancel()
        last = course[-1][0]
        await orchestrator.apply(_wanted(last))
        await asyncio.gather(*calls, return_exceptions=True)
        assert {q for q, step in last.items() if step < 40} <= orchestrator.serving().keys()
        for query, plan_id in orchestrator.serving().items():
            starts = last[query] < 40  # one that does not leaves the plan before
            assert not starts or plan_id == PLANS[last[query]].id
        serving = {f"{q}/{plan_id}": 1 for q, plan_id in orchestrator.serving().items()}
        assert {name: n for name, n in launcher.running.items() if n} == serving
        await orchestrator.close()
        assert not any(launcher.running.values())

    asyncio.run(scenario())


def _wanted(wish: dict[str, int]) -> dict[str, DesiredDeployment]:
    return {query: desired("echo", PLANS[step]) for query, step in wish.items()}
