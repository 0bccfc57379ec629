"""The contract of `LatencyMemory`, over every kind of database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from sqlalchemy import Engine

from circinus.api.store.history import SqlLatencies
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency


def test_nothing_is_known_of_a_new_plan(engine: Engine) -> None:
    assert SqlLatencies(engine).recall("p") == {}


def test_the_last_that_was_kept_is_recalled_by_the_next_service(engine: Engine) -> None:
    learnt = LearntLatency(LatencyLine(prior_s=0.1))
    for size in range(1, 40):
        learnt.observe(0.01 * size + 1 / 3, float(size))
    first = SqlLatencies(engine)
    first.keep("p", {"edge": {}})
    first.keep("p", {"edge": {"serve at replica 0": learnt.dump()}})
    recalled = SqlLatencies(engine).recall("p")["edge"]["serve at replica 0"]
    again = LearntLatency.load(recalled)
    assert again.dump() == learnt.dump()
    assert again.quantile(0.9, 25.0) == learnt.quantile(0.9, 25.0)
    assert SqlLatencies(engine).recall("other") == {}


def test_two_who_keep_a_new_plan_at_the_same_time_both_do(engine: Engine) -> None:
    together, latencies = Barrier(2), SqlLatencies(engine)

    def keep(plan_id: str) -> None:
        together.wait()
        latencies.keep(plan_id, {"edge": {}})

    with ThreadPoolExecutor(2) as threads:
        for plan_id in map(str, range(20)):
            list(threads.map(keep, [plan_id, plan_id]))
            assert latencies.recall(plan_id) == {"edge": {}}
