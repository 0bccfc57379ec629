from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.deploy.runtime.segments import Segment, segments
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline, inputs_of, output_of, run_operator
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Operator, OperatorFunction, OperatorSpec
from circinus.pipelines.model.payload import Payload

CONFIGURATION = Configuration(())


def chain(*names: str) -> PipelineGraph:
    specs = [
        OperatorSpec(name=name, after=(names[i - 1],) if i else ()) for i, name in enumerate(names)
    ]
    return PipelineGraph(name="chain", operators=tuple(specs))


def test_an_operator_that_is_not_placed_is_named() -> None:
    with pytest.raises(InvalidInput, match="must place every operator, missing is, got 'b'"):
        segments(chain("a", "b"), {"a": "device"})


def test_a_chain_to_the_cloud_and_back_has_three_segments() -> None:
    found = segments(
        chain("a", "b", "c", "d"), {"a": "device", "b": "cloud", "c": "cloud", "d": "device"}
    )
    assert found == (
        Segment(tier="device", operators=("a",), needs=(), takes_input=True, wants=("a",)),
        Segment(tier="cloud", operators=("b", "c"), needs=("a",), takes_input=False, wants=("c",)),
        Segment(tier="device", operators=("d",), needs=("c",), takes_input=False, wants=("d",)),
    )


def test_a_diamond_on_one_tier_is_one_segment() -> None:
    graph = diamond()
    (only,) = segments(graph, dict.fromkeys("abcd", "cloud"))
    assert only.operators == ("a", "b", "c", "d")
    assert (only.needs, only.takes_input, only.wants) == ((), True, ("d",))


def test_branches_on_unlike_tiers_wait_only_for_the_fork() -> None:
    found = segments(diamond(), {"a": "x", "b": "x", "c": "y", "d": "x"})
    # b does not join a: c's start on y would wait for b.
    assert [(s.operators, s.needs) for s in found] == [
        (("a",), ()),
        (("b",), ("a",)),
        (("c",), ("a",)),
        (("d",), ("b", "c")),
    ]


def diamond() -> PipelineGraph:
    return PipelineGraph(
        name="diamond",
        operators=(
            OperatorSpec(name="a"),
            OperatorSpec(name="b", after=("a",)),
            OperatorSpec(name="c", after=("a",)),
            OperatorSpec(name="d", after=("b", "c")),
        ),
    )


def recorder(name: str) -> OperatorFunction:
    """An operator whose output tells its own name and everything it was given."""

    def run(inputs: Payload, knobs: object) -> Payload:
        return [name, inputs]

    return run


@st.composite
def placed_pipelines(draw: st.DrawFn) -> tuple[Pipeline, dict[str, str]]:
    count = draw(st.integers(1, 7))
    names = [f"o{i}" for i in range(count)]
    operators = []
    for i, name in enumerate(names):
        after = draw(st.lists(st.sampled_from(names[:i]), unique=True)) if i else []
        spec = OperatorSpec(name=name, after=tuple(after))
        operators.append(Operator(spec=spec, run=recorder(name)))
    pipeline = Pipeline(name="random", operators=tuple(operators), score=lambda a, b: 1.0)
    return pipeline, {name: draw(st.sampled_from(["x", "y", "z"])) for name in names}


def run_in_segments(pipeline: Pipeline, placement: dict[str, str], input: Payload) -> Payload:
    """Run each segment knowing nothing but what it says it needs."""
    handed_on: dict[str, Payload] = {}
    for segment in segments(pipeline.graph, placement):
        known = {name: handed_on[name] for name in segment.needs}
        for name in segment.operators:
            given_input = input if segment.takes_input else None
            inputs = inputs_of(pipeline.graph, name, given_input, known)
            known[name] = run_operator(pipeline.by_name[name], inputs, CONFIGURATION)
        handed_on.update({name: known[name] for name in segment.wants})
    return output_of(pipeline.graph, handed_on)


@given(placed_pipelines())
@settings(max_examples=150, deadline=None)
def test_running_segments_gives_the_pipelines_output(
    placed: tuple[Pipeline, dict[str, str]],
) -> None:
    pipeline, placement = placed
    assert run_in_segments(pipeline, placement, "in") == pipeline.run("in", CONFIGURATION)


@given(placed_pipelines())
@settings(max_examples=150, deadline=None)
def test_no_operator_starts_later_than_if_it_ran_alone(
    placed: tuple[Pipeline, dict[str, str]],
) -> None:
    """With a slice that runs one thing at a time only where the group does, in unit steps.

    An operator that others on another tier wait for is the last of its segment, and every
    member of a segment is ready when the segment is or by what ran before it inside.
    """
    pipeline, placement = placed
    found = segments(pipeline.graph, placement)
    assert sorted(o for s in found for o in s.operators) == sorted(placement)
    for segment in found:
        for operator in pipeline.graph.operators:
            if placement[operator.name] != segment.tier:
                assert not set(operator.after) & set(segment.operators[:-1])
        for name in segment.operators:
            outer = set(pipeline.graph.operator(name).after) - set(segment.operators)
            assert outer in (set(), set(segment.needs))
