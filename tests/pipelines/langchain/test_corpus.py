"""No chain or graph of the corpus comes out false."""

import asyncio
import re

import pytest

from circinus.api.bootstrap.planning import plan_query
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.langchain import Reading, configured, pipeline_from_runnable
from circinus.pipelines.langchain.values import comparable, pack
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload, content_hash
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from tests.pipelines.langchain.corpus import CASES, Case, Step, Value

PLANNED = [case for case in CASES if not case.refused]
REFUSED = [case for case in CASES if case.refused]
IS_RANDOM = "another output each time"
named = pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.name)


def _score(output: Value, expected: Value) -> float:
    """A number that differs when the output does."""
    return int(content_hash(comparable(pack(output)))[:4], 16) / 0xFFFF


def _read(case: Case, chain: Step) -> Pipeline:
    return pipeline_from_runnable(chain, Reading(name="own", score=_score, choices=case.choices))


def _told(case: Case, pipeline: Pipeline) -> str:
    assert pipeline.remarks is not None
    return " ".join(pipeline.remarks([pack(item) for item in case.inputs]).remarks)


def _by_chain(chain: Step, item: Value) -> Value:
    try:
        return chain.invoke(item)
    except (TypeError, NotImplementedError):
        return asyncio.run(chain.ainvoke(item))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_would_come_out_false_is_refused_with_the_step_s_name(case: Case) -> None:
    chain = case.make()
    with pytest.raises(InvalidInput, match=case.refused):
        _told(case, _read(case, chain))


@named
def test_every_configuration_gives_what_the_configured_chain_gives(case: Case) -> None:
    chain = case.make()
    pipeline = _read(case, chain)
    space = ConfigurationSpace(pipeline.graph)

    told = _told(case, pipeline)
    assert re.search(case.remark, told) if case.remark else told == ""
    assert len(pipeline.graph.slots) == case.knobs
    if IS_RANDOM in told:
        return
    for configuration in map(space.configuration, range(space.size)):
        for item in case.inputs:
            by_hand = pipeline.run(pack(item), configuration)
            theirs = pack(_by_chain(configured(chain, configuration.as_dict()), item))
            assert comparable(by_hand) == comparable(theirs), configuration


@named
def test_the_announced_accuracy_is_that_of_the_configured_chain(case: Case) -> None:
    if IS_RANDOM in case.remark:
        pytest.skip("a random step has no accuracy of its own on five inputs")
    chain = case.make()
    pipeline = _read(case, chain)
    items: list[Payload] = [pack(item) for item in case.inputs]
    query = Query(
        pipeline="own",
        slo=Slo(accuracy=0.0, latency_s=10.0),
        limits=PlanningLimits(profiling_s=5.0),
    )
    data = Dataset(name="own", examples=[Example(input=i, expected=None) for i in items])

    result = plan_query(query, PRESETS["one-tier"], pipeline, data)

    assert result.plans
    for plan in result.plans:
        chosen = configured(chain, plan.configuration)
        scores = [_score(_by_chain(chosen, item), None) for item in case.inputs]
        assert plan.accuracy.value == pytest.approx(sum(scores) / len(scores), abs=1e-9)
