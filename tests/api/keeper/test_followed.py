"""What dispatchers are told, and when nobody sends requests any more to what serves no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from circinus.api.keeper.all_dispatchers import AllDispatchers
from circinus.api.keeper.figures import QueryFigures, figures_of
from circinus.api.keeper.followed import Followed
from circinus.deploy.runtime.dispatcher import Taken
from circinus.deploy.runtime.following import ToldLauncher
from circinus.deploy.runtime.hearing import Came, Took
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.traffic import Traffic
from circinus.pipelines.clock import Clock, ManualClock, SystemClock
from circinus.pipelines.errors import Unavailable
from circinus.scheduler.dispatch.baselines import MinCostMatching
from tests.deploy.serving import ONE_TIER, desired, pipeline_of, plan, serving, within

AT_ONCE_S = 2.0


@asynccontextmanager
async def followed(
    folder: Path, *, leaves_s: float = 30.0, clock: Clock | None = None
) -> AsyncIterator[Followed]:
    """Return what serves a query `q`, for followers."""
    async with serving(folder, {"q": desired("echo")}) as orchestrator:
        found = Followed(orchestrator, clock or SystemClock(), leaves_s=leaves_s)
        orchestrator.followers = found
        try:
            yield found
        finally:
            found.close()


def idle() -> Orchestrator:
    policy = MinCostMatching()
    return Orchestrator(ONE_TIER, ToldLauncher(), pipeline_of, policy, SystemClock())


def test_before_it_is_known_what_should_serve_nobody_is_told_that_nothing_does() -> None:
    async def scenario() -> None:
        orchestrator = idle()
        here = Followed(orchestrator, SystemClock())
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


def test_figures_are_of_all_who_dispatch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(tmp_path) as here:
            together = AllDispatchers(here.orchestrator, here)
            for value in range(3):
                await together.request("q", value, within(5.0))
            theirs = figures_of(here.orchestrator)  # as if another had answered as many
            await here.after("", "d", "")
            here.note("d", theirs)
            assert together.recent()["q"].answered == 6
            assert len(together.recent()["q"].taken) == 6
            assert together.lately()["q"][0].requests == 6
            assert together.arrivals_per_s()["q"] == pytest.approx(0.6)
            assert together.figures()["q"]["cloud"].answered == 6
            observed = together.status("q").observed
            assert observed is not None
            assert (observed.count, observed.window, observed.failed) == (6, 6, 0)
            here.note("d", figures_of(here.orchestrator, theirs))
            assert together.recent()["q"].answered == 6  # nothing new is nothing more

    asyncio.run(scenario())


def test_figures_of_another_plan_count_for_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(tmp_path) as here:
            await here.orchestrator.request("q", 1, within(5.0))
            other = plan("echo", shares={"cloud": 0.5})
            await here.orchestrator.apply({"q": desired("echo", other)})
            told = figures_of(here.orchestrator)
            await here.orchestrator.apply({"q": desired("echo")})
            await here.after("", "d", "")
            here.note("d", told)
            assert here.figures() == {}

    asyncio.run(scenario())


def test_the_service_learns_from_requests_that_others_send(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with followed(tmp_path, clock=clock) as here:
            together = AllDispatchers(here.orchestrator, here)
            await here.after("", "d", "")
            one, other = told([(1.5, 1.0), (0.5, 3.0)]), told([(1.0, 2.0)])
            here.note("one", {"q": one})
            here.note("other", {"q": other})
            assert sizes(together) == []  # a third may have more of that time to tell
            clock.seconds += 2.0
            here.note("one", {"q": one})  # as if the answer to the report had been lost
            assert sizes(together) == [1.0, 2.0, 3.0]
            assert together.news()["q"].seen == 3
            latencies = here.orchestrator._serving["q"].dispatcher.queues["cloud"].latencies
            assert latencies.mean(("echo", 1.0), "small") == pytest.approx(0.25)
            demand = together.demand("q")
            assert demand is not None
            assert demand.elsewhere_s == {"cloud": pytest.approx(0.5)}

    asyncio.run(scenario())


def sizes(together: AllDispatchers) -> list[float]:
    demand = together.demand("q")
    return [] if demand is None else demand.sizes.tolist()


def told(came: Sequence[tuple[float, float]]) -> QueryFigures:
    """What a dispatcher tells first: requests, so many seconds ago, of sizes."""
    return QueryFigures(
        plan_id=desired("echo").plan.id,
        arrivals_per_s=0.0,
        answered=len(came),
        failed=0,
        taken=tuple(Taken(0.75, {"cloud": 0.25}, 0.5) for _ in came),
        queues={},
        spans=Traffic(0.0).counts(0.0),
        came=tuple(Came(ago_s, size, 0) for ago_s, size in came),
        came_count=len(came),
        took=tuple(Took("cloud", "echo", 1.0, "small", 0.25) for _ in came),
        took_count=len(came),
    )
