"""The latest answers are kept one by one, and loads are those of the moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from circinus.deploy.runtime.observed import LatestAnswers, TierLoad
from tests.deploy.serving import desired, serving, within


def test_without_answers_there_are_none() -> None:
    seen = LatestAnswers().seen(5.0)
    assert (len(seen.ago_s), len(seen.latency_s), len(seen.usd)) == (0, 0, 0)
    assert len(seen.within(60.0).latency_s) == 0


def test_only_the_latest_are_kept_the_oldest_first() -> None:
    kept = LatestAnswers(most=3)
    for second in range(5):
        kept.note(float(second), second / 10, 0.0)
    seen = kept.seen(4.0)
    assert seen.ago_s.tolist() == [2.0, 1.0, 0.0]
    assert seen.latency_s.tolist() == [0.2, 0.3, 0.4]
    assert seen.within(1.0).latency_s.tolist() == [0.3, 0.4]


@pytest.mark.parametrize(("waiting", "queues"), [(2, False), (3, True)])
def test_it_queues_where_more_wait_than_could_be_at_work(waiting: int, queues: bool) -> None:
    assert TierLoad(waiting=waiting, places=2, workers=1).queues is queues


def test_a_deployment_tells_what_its_requests_got(tmp_path: Path) -> None:
    async def scenario() -> None:
        wanted = desired("nap")
        async with serving(tmp_path, {"q": wanted}) as orchestrator:
            await orchestrator.request("q", 0.05, within(10.0))
            both = [
                asyncio.create_task(orchestrator.request("q", 0.2, within(10.0))) for _ in range(3)
            ]
            await asyncio.sleep(0.1)
            seen = orchestrator.seen_requests()["q"]
            assert seen.tiers == {"cloud": TierLoad(waiting=2, places=1, workers=1)}
            assert seen.arrivals_per_s == pytest.approx(0.4)
            assert seen.plan_id == wanted.plan.id
            assert seen.answers.latency_s[0] == pytest.approx(0.05, abs=0.04)
            await asyncio.gather(*both)
            assert len(orchestrator.seen_requests()["q"].answers.latency_s) == 4

    asyncio.run(scenario())
