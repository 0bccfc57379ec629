from __future__ import annotations

from pathlib import Path

from circinus.api.store.engine import connect, migrate
from circinus.api.store.history import SqlLatencies
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency


def memory(folder: Path) -> SqlLatencies:
    engine = connect(f"sqlite:///{folder / 'circinus.sqlite3'}")
    migrate(engine)
    return SqlLatencies(engine)


def test_nothing_is_known_of_a_new_plan(tmp_path: Path) -> None:
    assert memory(tmp_path).recall("p") == {}


def test_the_last_that_was_kept_is_recalled_by_the_next_service(tmp_path: Path) -> None:
    learnt = LearntLatency(LatencyLine(prior_s=0.1))
    for size in range(1, 40):
        learnt.observe(0.01 * size + 1 / 3, float(size))
    first = memory(tmp_path)
    first.keep("p", {"edge": {}})
    first.keep("p", {"edge": {"serve at replica 0": learnt.dump()}})
    recalled = memory(tmp_path).recall("p")["edge"]["serve at replica 0"]
    again = LearntLatency.load(recalled)
    assert again.dump() == learnt.dump()
    assert again.quantile(0.9, 25.0) == learnt.quantile(0.9, 25.0)
    assert memory(tmp_path).recall("other") == {}
