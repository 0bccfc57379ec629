from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from circinus.api.bootstrap.parts import opened_parts
from circinus.api.bootstrap.planning import PriorWork, plan_query
from circinus.api.schemas.plans import plan_view, to_plan
from circinus.api.settings import Settings
from circinus.api.store.records import from_document, to_document
from circinus.deploy.profiling.prefix_files import PrefixFiles
from circinus.deploy.profiling.processes import ProcessPool
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec
from circinus.pipelines.model.operators import Settings as KnobSettings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.policies.registry import Greedy
from tests.deploy.profiled_pipelines import CHAIN, chain

CALLS: Counter[str] = Counter()


def _double(inputs: Payload, knobs: KnobSettings) -> Payload:
    CALLS["double"] += 1
    time.sleep(0.002)  # dear enough to be kept on disk
    assert isinstance(inputs, float)
    return inputs * 2


def test_a_second_query_takes_outputs_from_the_folder_of_the_first(tmp_path: Path) -> None:
    pipeline = Pipeline(
        name="doubles",
        operators=(
            Operator(
                spec=OperatorSpec(name="double", knobs=(Knob(name="k", values=(0, 1)),)),
                run=_double,
            ),
        ),
        score=lambda output, expected: float(output == expected),
    )
    examples = tuple(Example(input=float(i), expected=2.0 * i) for i in range(5))
    data = Dataset(name="five", examples=examples)
    query = Query(
        pipeline="doubles",
        slo=Slo(accuracy=0.9, latency_s=5.0),
        limits=PlanningLimits(configurations=2),
    )
    prior = PriorWork(outputs=PrefixFiles(tmp_path))
    first = plan_query(query, PRESETS["one-tier"], pipeline, data, prior=prior)
    calls = CALLS["double"]
    second = plan_query(query, PRESETS["one-tier"], pipeline, data, prior=prior)
    assert calls > 0
    assert CALLS["double"] == calls
    assert second.spent_s == 0
    assert second.outcome is first.outcome


def test_plans_know_the_memory_that_a_pool_saw_and_keep_it_when_stored_and_shown() -> None:
    examples = tuple(Example(input=float(i), expected=i + 1) for i in range(4))
    query = Query(
        pipeline="chain",
        slo=Slo(accuracy=0.9, latency_s=5.0),
        limits=PlanningLimits(configurations=3),
    )
    with ProcessPool(CHAIN, SystemClock()) as pool:
        found = plan_query(
            query,
            PRESETS["one-tier"],
            chain,
            Dataset(name="four", examples=examples),
            executor=pool,
        )
    plan = found.plans[0]
    (tier,) = plan.deployment.tiers

    assert plan.memory_bytes.keys() == {"add", "slower"}
    needed = plan.memory_in(tier)
    assert needed is not None
    assert 2**24 < needed < 2**30  # a process with Python, numpy and gRPC's encoding
    assert from_document(Plan, to_document(plan)) == plan
    shown = plan_view(plan, query.slo, PRESETS["one-tier"])
    assert to_plan(shown, chain.graph).memory_bytes == plan.memory_bytes


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, Priced),
        ({"method": "published"}, Greedy),
        ({"method": "published", "scheduling_policy": "priced"}, Priced),
    ],
)
def test_a_service_schedules_by_the_policy_of_its_method_unless_one_is_set(
    settings: dict[str, str], policy: type, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'service.sqlite3'}"
    told = Settings(database_url=url, **settings)  # type: ignore[arg-type]  # texts
    with opened_parts(told) as made:
        assert isinstance(made.upkeep.policy, policy)


def test_a_service_runs_no_operators_in_the_process_that_plans(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'service.sqlite3'}"
    opened = opened_parts(Settings(database_url=url, executor="in-process"))
    with pytest.raises(InvalidInput, match=r"executor must be pool, .* got 'in-process'"), opened:
        pass
