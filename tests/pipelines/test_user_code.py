import asyncio
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Operator, OperatorSpec, Scaling, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.user_code import settled, wait_for

_WORD = ContextVar("word", default="")


async def _plus(x: Payload, knobs: Settings) -> Payload:
    await asyncio.sleep(0)
    if x == "bad":
        raise ValueError("no number")
    return int(str(x)) + 1


async def _each(items: Sequence[Payload], knobs: Settings) -> Sequence[Payload]:
    return [await _plus(item, knobs) for item in items]


async def _equal(output: Payload, expected: Payload) -> float:
    return float(output == expected)


_ALONE = Operator(spec=OperatorSpec(name="plus"), run=_plus)  # type: ignore[arg-type]  # awaited
_TOGETHER = Operator(
    spec=OperatorSpec(name="plus", scaling=Scaling.BATCHED, batch_latency={1: 1.0}),
    run_batch=_each,  # type: ignore[arg-type]  # awaited
)


def _pipeline(operator: Operator) -> Pipeline:
    return Pipeline(name="own", operators=(operator,), score=_equal)  # type: ignore[arg-type]  # awaited


@pytest.mark.parametrize("operator", [_ALONE, _TOGETHER])
def test_what_an_async_operator_raises_is_its_failure(operator: Operator) -> None:
    pipeline = _pipeline(operator)
    with pytest.raises(OperatorFailed, match="operator plus failed: ValueError: no number"):
        pipeline.run("bad", ConfigurationSpace(pipeline.graph).configuration(0))


@pytest.mark.parametrize("operator", [_ALONE, _TOGETHER])
def test_async_operators_and_metrics_are_awaited(operator: Operator) -> None:
    pipeline = _pipeline(operator)

    assert pipeline.run(1, ConfigurationSpace(pipeline.graph).configuration(0)) == 2
    assert pipeline.score_of(2, 2) == 1.0


def test_what_is_awaited_sees_the_context_of_its_caller_also_inside_a_loop() -> None:
    async def read() -> str:
        return _WORD.get()

    async def outside() -> str:
        _WORD.set("tin")
        return wait_for(read())

    assert asyncio.run(outside()) == "tin"
    assert wait_for(read()) == ""
    assert settled(3) == 3
