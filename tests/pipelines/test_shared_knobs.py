import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import graph_from_dict, graph_to_dict
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, KnobValue, OperatorSpec
from circinus.pipelines.model.restrictions import Choice, Restrictions, restricted_graph


def _model(*values: str, shared: str = "model") -> Knob:
    return Knob(name="model", values=values or ("small", "large"), shared=shared)


def _graph(last: Knob | None = None) -> PipelineGraph:
    size = Knob(name="size", values=(1, 2, 3))
    draft = OperatorSpec(name="draft", knobs=(_model(),))
    check = OperatorSpec(name="check", after=("draft",), knobs=(size,))
    answer = OperatorSpec(name="answer", after=("check",), knobs=(last or _model(),))
    return PipelineGraph(name="p", operators=(draft, check, answer))


def test_shared_knobs_of_unlike_values_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"knob answer\.model\.values must be those of draft"):
        _graph(_model("small", "huge"))


def test_a_configuration_whose_shared_knobs_differ_is_refused() -> None:
    given: dict[str, dict[str, KnobValue]] = {
        "draft": {"model": "small"},
        "check": {"size": 1},
        "answer": {"model": "large"},
    }
    with pytest.raises(InvalidInput, match=r"answer\.model must be 'small', as where model"):
        ConfigurationSpace(_graph()).parse(given)


def test_shared_knobs_have_one_value_in_every_configuration() -> None:
    space = ConfigurationSpace(_graph())

    assert space.size == 6  # 2 models, 3 sizes
    for number in range(space.size):
        found = space.configuration(number)
        assert found.of("draft") == found.of("answer")
        assert space.number(found) == number
        assert space.parse(found.as_dict()) == found
    assert space.parse({"answer": {"model": "large"}, "check": {"size": 3}}).as_dict() == {
        "draft": {"model": "large"},
        "check": {"size": 3},
        "answer": {"model": "large"},
    }


def test_a_shared_knob_counts_for_every_operator_that_has_it_and_those_after_them() -> None:
    apart = PipelineGraph(
        name="p",
        operators=(
            OperatorSpec(name="a", knobs=(_model(),)),
            OperatorSpec(name="b"),
            OperatorSpec(name="c", after=("b",), knobs=(_model(),)),
        ),
    )

    assert _graph().upstream_knobs == ((0,), (0, 1), (0, 1))
    assert apart.upstream_knobs == ((0,), (), (0,))


def test_what_restricts_a_shared_knob_restricts_it_everywhere() -> None:
    never = Restrictions(knobs={"answer": {"model": Choice(never=("large",))}})
    both = Restrictions(knobs={**never.knobs, "draft": {"model": Choice(only=("large",))}})

    left = restricted_graph(_graph(), never)
    assert ConfigurationSpace(left).size == 3
    assert left.operator("draft").knobs[0].values == ("small",)
    with pytest.raises(InvalidInput, match="must leave a value"):
        restricted_graph(_graph(), both)


def test_a_trace_keeps_which_knobs_are_shared() -> None:
    assert graph_from_dict(graph_to_dict(_graph())) == _graph()
