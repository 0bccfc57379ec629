import numpy as np
import pytest
from hypothesis import given

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from tests.pipelines.strategies import graphs

GRAPH = PipelineGraph(
    name="g",
    operators=(
        OperatorSpec(
            name="a", knobs=(Knob(name="x", values=(1, 2)), Knob(name="y", values=("p", "q", "r")))
        ),
        OperatorSpec(name="b", after=("a",), knobs=(Knob(name="only", values=("one",)),)),
    ),
)
SPACE = ConfigurationSpace(GRAPH)


@pytest.mark.parametrize("number", [-1, 6])
def test_a_number_outside_the_space_is_refused(number: int) -> None:
    with pytest.raises(InvalidInput, match=rf"must be in \[0, 6\), got {number}"):
        SPACE.configuration(number)


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        ({"a": {"x": 1}}, r"a.y must be given, got None"),
        ({"a": {"x": 3, "y": "p"}}, r"a.x must be one of 1, 2, got 3"),
        ({"a": {"x": True, "y": "p"}}, r"a.x must be one of 1, 2, got True"),
        ({"a": {"x": 1, "y": "p", "z": 0}}, r"knob must be among x, y, got 'z'"),
        ({"a": {"x": 1, "y": "p"}, "c": {}}, r"operator must be among a, b, got 'c'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    nested: dict[str, dict[str, int]], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        SPACE.parse(nested)


def test_every_broken_rule_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        SPACE.parse({"a": {"x": 9}, "nowhere": {}})

    assert len(caught.value.violations) == 3


def test_a_knob_with_one_value_may_be_left_out() -> None:
    configuration = SPACE.parse({"a": {"x": 2, "y": "q"}})

    assert configuration.as_dict() == {"a": {"x": 2, "y": "q"}, "b": {"only": "one"}}
    assert configuration.of("b") == {"only": "one"}
    assert str(configuration) == "a.x=2 a.y=q b.only=one"


def test_the_last_knob_counts_fastest() -> None:
    assert [SPACE.configuration(i).of("a")["y"] for i in range(4)] == ["p", "q", "r", "p"]


@given(graph=graphs())
def test_numbers_indices_and_configurations_agree(graph: PipelineGraph) -> None:
    space = ConfigurationSpace(graph)
    numbers = np.arange(min(space.size, 50))

    assert np.array_equal(space.numbers(space.indices(numbers)), numbers)
    for number, row in zip(numbers, space.indices(numbers), strict=True):
        configuration = space.configuration(int(number))
        assert space.number(configuration) == number
        assert space.parse(configuration.as_dict()) == configuration
        values = [slot.knob.values[i] for slot, i in zip(graph.slots, row, strict=True)]
        assert [value for _, _, value in configuration.values] == values


def test_a_pipeline_without_knobs_has_one_configuration() -> None:
    space = ConfigurationSpace(PipelineGraph(name="g", operators=(OperatorSpec(name="a"),)))

    assert space.size == 1
    assert space.configuration(0).values == ()
    assert space.indices([0]).shape == (1, 0)


def test_a_space_too_large_to_list_still_has_numbers() -> None:
    knobs = tuple(Knob(name=f"k{i}", values=tuple(range(10))) for i in range(30))
    space = ConfigurationSpace(
        PipelineGraph(name="g", operators=(OperatorSpec(name="a", knobs=knobs),))
    )

    assert space.size == 10**30
    assert space.number(space.configuration(10**29 + 7)) == 10**29 + 7
