from itertools import combinations

import pytest
from hypothesis import given

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec, Scaling
from tests.pipelines.strategies import graphs


def _graph(**after: tuple[str, ...]) -> PipelineGraph:
    operators = tuple(OperatorSpec(name=name, after=parents) for name, parents in after.items())
    return PipelineGraph(name="g", operators=operators)


def test_a_cycle_is_refused_and_named() -> None:
    with pytest.raises(InvalidInput, match=r"must not form a cycle, got \['a', 'b'\]"):
        _graph(s=(), a=("s", "b"), b=("a",))


def test_an_operator_after_itself_is_a_cycle() -> None:
    with pytest.raises(InvalidInput, match="must not form a cycle"):
        _graph(a=("a",))


def test_an_unknown_parent_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"operator b.after must be among a, b, got 'x'"):
        _graph(a=(), b=("x",))


def test_a_repeated_operator_is_refused() -> None:
    operators = (OperatorSpec(name="a"), OperatorSpec(name="a"))
    with pytest.raises(InvalidInput, match="must not repeat, got 'a'"):
        PipelineGraph(name="g", operators=operators)


def test_no_operator_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must have at least one operator"):
        PipelineGraph(name="g", operators=())


@pytest.mark.parametrize("bad", ["", "1a", "a b", "a/b", "a" * 64, "ä"])
def test_a_name_that_is_no_name_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match=r"operator.name must start with a letter"):
        OperatorSpec(name=bad)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ((), "at least one value"),
        ((1, 1.0), "must not repeat"),
        ((1, True), "must not repeat"),
        ((float("nan"),), "text, numbers or truth values"),
    ],
)
def test_knob_values_that_are_no_choices_are_refused(values: tuple[float, ...], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        Knob(name="k", values=values)


def test_numbers_are_ordered_and_words_are_not_unless_told() -> None:
    assert Knob(name="k", values=(1, 2)).ordered is True
    assert Knob(name="k", values=("a", "b")).ordered is False
    assert Knob(name="k", values=("low", "high"), ordered=True).ordered is True
    assert Knob(name="k", values=(True, False)).ordered is False


@pytest.mark.parametrize("curve", [{}, {2: 1.0}, {1: 0.5}, {1: 1.0, 2: 0.5}])
def test_a_batch_curve_that_falls_or_does_not_start_at_one_is_refused(
    curve: dict[int, float],
) -> None:
    with pytest.raises(InvalidInput, match="batch_latency must map"):
        OperatorSpec(name="a", scaling=Scaling.BATCHED, batch_latency=curve)


def test_operators_come_out_in_topological_order_and_otherwise_as_given() -> None:
    graph = _graph(d=("b", "c"), c=("a",), b=("a",), a=())

    assert [op.name for op in graph.operators] == ["a", "c", "b", "d"]
    assert graph.sinks == ("d",)
    assert graph.parents == ((), (0,), (0,), (2, 1))
    assert graph.lineages == ((0,), (0, 1), (0, 2), (0, 1, 2, 3))


def test_width_counts_what_can_run_at_once() -> None:
    graph = _graph(a=(), b=("a",), c=("a",), d=("b", "c"))

    assert graph.width([0, 1, 2, 3]) == 2
    assert graph.width([0, 1, 3]) == 1
    assert graph.width([]) == 0


@given(graph=graphs(most=6))
def test_width_equals_the_largest_antichain_by_brute_force(graph: PipelineGraph) -> None:
    positions = range(len(graph.operators))

    def independent(group: tuple[int, ...]) -> bool:
        return all(
            a not in graph.lineages[b] and b not in graph.lineages[a]
            for a, b in combinations(group, 2)
        )

    groups = (g for size in range(7) for g in combinations(positions, size))
    assert graph.width(list(positions)) == max(len(g) for g in groups if independent(g))
