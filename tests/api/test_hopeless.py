"""Queries that no plan can satisfy, or hardly, are answered within twice what they may profile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from circinus.api.bootstrap.execution import plan_here
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.query import OnFailure, PlanningLimits, Query
from circinus.pipelines.model.slo import HoldsFor, LatencyStatistic, Slo
from circinus.planner.search.result import PlanningOutcome

PROFILING_S = 5.0
START_S = 5.0
"""Of the executor, on a machine that does something else besides."""
TIERS = PRESETS["three-tier"]
Run = Callable[[Payload, Settings], Payload]


def _right(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int)
    return float(inputs * 7919 % 100 < 60 + 5 * sum(int(value) for value in knobs.values()))


def _slow(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(0.4)
    return _right(inputs, knobs)


def _raises(inputs: Payload, knobs: Settings) -> Payload:
    raise ValueError("never")


def _handed_on(inputs: Payload, knobs: Settings) -> Payload:
    return inputs


def _score(output: Payload, expected: Payload) -> float:
    return output if isinstance(output, float) else 0.0


def _chain(length: int, run: Run = _right, values: int = 3, knobs: int = 1) -> Pipeline:
    """The last operator decides; those before hand on."""
    told = tuple(Knob(name=f"k{i}", values=tuple(range(values))) for i in range(knobs))
    operators = tuple(
        Operator(
            spec=OperatorSpec(name=f"o{i}", after=(f"o{i - 1}",) if i else (), knobs=told),
            run=run if i == length - 1 else _handed_on,
        )
        for i in range(length)
    )
    return Pipeline(name="hopeless", operators=operators, score=_score)


@dataclass(frozen=True)
class Kind:
    """What is asked, of what."""

    name: str
    slo: Slo
    pipeline: Pipeline = field(default_factory=lambda: _chain(2))
    examples: int = 100
    more: dict[str, object] = field(default_factory=dict)
    tiers: Infrastructure = TIERS


GOOD = Slo(accuracy=0.5, latency_s=1.0)
KINDS = [
    Kind("accuracy of one", replace(GOOD, accuracy=1.0)),
    Kind("accuracy just out of reach", replace(GOOD, accuracy=0.71)),
    Kind("latency of a nanosecond", replace(GOOD, latency_s=1e-9)),
    Kind(
        "percentile of a nanosecond",
        replace(GOOD, latency_s=1e-9, latency_statistic=LatencyStatistic.P99),
    ),
    Kind("no money", replace(GOOD, latency_s=1e-5, cost_usd_per_hour=0.0)),
    Kind("throughput beyond every machine", replace(GOOD, throughput_per_s=1e9)),
    Kind("both out of reach", Slo(accuracy=1.0, latency_s=1e-9)),
    Kind(
        "future of few examples",
        replace(GOOD, accuracy=0.9, holds_for=HoldsFor.FUTURE),
        examples=5,
    ),
    Kind("future just out of reach", replace(GOOD, accuracy=0.65, holds_for=HoldsFor.FUTURE)),
    Kind("one example", replace(GOOD, accuracy=1.0), examples=1),
    Kind("100,000 examples at the bound", replace(GOOD, accuracy=0.7), examples=100_000),
    Kind("100,000 examples out of reach", replace(GOOD, accuracy=0.99), examples=100_000),
    Kind("one configuration", replace(GOOD, accuracy=0.9), _chain(1, values=1)),
    Kind("60 million configurations", replace(GOOD, accuracy=1.0), _chain(6, knobs=3, values=2)),
    Kind("twelve operators", replace(GOOD, accuracy=1.0), _chain(12, values=2)),
    Kind("thousands of placements", replace(GOOD, accuracy=1.0), _chain(7, values=3)),
    Kind("slow operators", replace(GOOD, accuracy=1.0), _chain(2, _slow)),
    Kind("always fails", GOOD, _chain(2, _raises)),
    Kind(
        "fails, scoring zero", GOOD, _chain(2, _raises), more={"on_failure": OnFailure.SCORE_ZERO}
    ),
    Kind("fails, stopping", GOOD, _chain(2, _raises), more={"on_failure": OnFailure.STOP}),
    Kind("a rate beyond every machine", GOOD, more={"request_rate_per_s": 1e6}),
    Kind("one tier that is too slow", replace(GOOD, latency_s=1e-9), tiers=PRESETS["one-tier"]),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_hopeless_query_is_answered_in_time(kind: Kind) -> None:
    limits = PlanningLimits(profiling_s=PROFILING_S)
    query = Query(pipeline="hopeless", slo=kind.slo, limits=limits, **kind.more)  # type: ignore[arg-type]  # fields of it
    examples = [Example(input=i, expected=None) for i in range(kind.examples)]
    clock = SystemClock()
    start = clock.now()

    result = plan_here(query, kind.tiers, kind.pipeline, Dataset(name="own", examples=examples))

    elapsed_s = clock.now() - start
    assert result.outcome is not PlanningOutcome.CANCELLED
    assert result.stopped_because
    assert elapsed_s <= 2 * PROFILING_S + START_S
