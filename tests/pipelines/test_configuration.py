from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.trace import graph_from_dict, graph_to_dict
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import DeviceProfile, with_device
from circinus.pipelines.model.operators import Knob, KnobValue, OperatorSpec
from circinus.pipelines.model.restrictions import (
    Choice,
    Restrictions,
    Stays,
    allowed_tiers,
    restricted_graph,
    words,
)
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


THREE = PRESETS["three-tier"]  # device, mec, cloud
RESTRICTIONS_GRAPH = PipelineGraph(
    name="g",
    operators=(
        OperatorSpec(name="a", knobs=(Knob(name="k", values=(1, 2, 3)),)),
        OperatorSpec(name="b", after=("a",), knobs=(Knob(name="m", values=("x", "y", True)),)),
    ),
)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"c": {"k": Choice(only=(1,))}}, r"restrictions.knobs must be among a, b, got 'c'"),
        ({"a": {"m": Choice(only=(1,))}}, r"restrictions.knobs.a must be among k, got 'm'"),
        ({"a": {"k": Choice(only=(4,))}}, r"knobs.a.k.only must be among 1, 2, 3, got 4"),
        ({"a": {"k": Choice(never=(0,))}}, r"knobs.a.k.never must be among 1, 2, 3, got 0"),
        ({"a": {"k": Choice(never=(1, 2, 3))}}, r"knobs.a.k must leave a value, got \[\]"),
        ({"b": {"m": Choice(only=(1,))}}, r"knobs.b.m.only must be among x, y, True, got 1"),
    ],
)
def test_a_restriction_of_knobs_that_does_not_fit_is_refused(
    knobs: dict[str, dict[str, Choice]], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        restricted_graph(RESTRICTIONS_GRAPH, Restrictions(knobs=knobs))


@pytest.mark.parametrize(
    ("restrictions", "message"),
    [
        (Restrictions(tiers={"c": Choice(only=("mec",))}), r"tiers must be among a, b, got 'c'"),
        (
            Restrictions(tiers={"a": Choice(never=("moon",))}),
            r"tiers.a.never must be among device, mec, cloud, got 'moon'",
        ),
        (
            Restrictions(tiers={"a": Choice(never=("device",))}, stays_on_device=Stays.INPUT),
            r"tiers.a must leave every operator a tier",
        ),
    ],
)
def test_a_restriction_of_tiers_that_does_not_fit_is_refused(
    restrictions: Restrictions, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        allowed_tiers(RESTRICTIONS_GRAPH, THREE, restrictions)


def test_every_fault_is_told_at_once() -> None:
    knobs = {"a": {"k": Choice(only=(9,))}, "b": {"z": Choice(only=(1,))}}
    with pytest.raises(InvalidInput) as caught:
        restricted_graph(RESTRICTIONS_GRAPH, Restrictions(knobs=knobs))
    assert len(caught.value.violations) == 2


def test_a_choice_of_nothing_and_a_choice_that_repeats_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must say only or never"):
        Choice()
    with pytest.raises(InvalidInput, match="only must have at least one"):
        Choice(only=())
    with pytest.raises(InvalidInput, match="never must not repeat"):
        Choice(never=("x", "x"))
    assert Choice(only=(1, True)).allows(1)  # two values, not one told twice


def test_what_stays_on_the_device_binds_those_that_take_the_input_or_all() -> None:
    def tiers(stays: Stays) -> list[tuple[int, ...]]:
        return list(allowed_tiers(RESTRICTIONS_GRAPH, THREE, Restrictions(stays_on_device=stays)))

    assert tiers(Stays.NOTHING) == [(0, 1, 2), (0, 1, 2)]
    assert tiers(Stays.INPUT) == [(0,), (0, 1, 2)]
    assert tiers(Stays.EVERYTHING) == [(0,), (0,)]


@given(
    st.sets(st.sampled_from([1, 2, 3]), max_size=2),
    st.one_of(st.none(), st.sets(st.sampled_from(["x", "y", True]), min_size=1)),
)
def test_a_restricted_graph_has_exactly_the_allowed_configurations(
    never: set[int], only: set[str | bool] | None
) -> None:
    choices = {"a": {"k": Choice(never=tuple(never))} if never else {}}
    if only is not None:
        choices["b"] = {"m": Choice(only=tuple(only))}
    narrow = ConfigurationSpace(restricted_graph(RESTRICTIONS_GRAPH, Restrictions(knobs=choices)))
    whole = ConfigurationSpace(RESTRICTIONS_GRAPH)
    left = {str(narrow.configuration(n)) for n in range(narrow.size)}
    allowed = {
        str(c)
        for c in map(whole.configuration, range(whole.size))
        if c.of("a")["k"] not in never and (only is None or c.of("b")["m"] in only)
    }
    assert left == allowed


def test_restrictions_are_told_in_words() -> None:
    told = words(
        Restrictions(
            tiers={"a": Choice(only=("device",))},
            knobs={"b": {"m": Choice(never=("x", "y"))}},
            stays_on_device=Stays.INPUT,
        )
    )
    assert told == ("a runs only on device", "b.m is never x or y", "input stays on the device")


def test_a_device_on_a_shared_origin_is_refused() -> None:
    with pytest.raises(InvalidInput, match="device must be left out: the tier"):
        with_device(PRESETS["one-tier"], DeviceProfile(speed_factor=1.0))


@pytest.mark.parametrize("field", ["speed_factor", "bandwidth_bytes_per_s"])
def test_a_device_without_speed_or_bandwidth_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"device.{field} must be finite and > 0, got 0"):
        DeviceProfile(**{field: 0.0})  # type: ignore[arg-type]  # a field of numbers


def test_a_device_changes_its_own_tier_and_links_alone() -> None:
    own = with_device(THREE, DeviceProfile(speed_factor=0.5, bandwidth_bytes_per_s=1e3))
    assert own.tier("device").speed_factor == 0.5
    assert own.links[0] == replace(THREE.links[0], bandwidth_bytes_per_s=1e3)
    assert (own.tiers[1:], own.links[1:]) == (THREE.tiers[1:], THREE.links[1:])
    assert own.route("device", "cloud").s_per_byte > THREE.route("device", "cloud").s_per_byte


def test_what_is_called_with_a_value_that_is_ruled_out_is_not_called_any_more() -> None:
    reader = OperatorSpec(
        name="reader", knobs=(Knob(name="model", values=("small", "large", "own")),),
        calls=("small", "large", "embedder"),
    )  # fmt: skip
    graph = PipelineGraph(name="g", operators=(reader,))
    knobs = {"reader": {"model": Choice(never=("large",))}}
    (left,) = restricted_graph(graph, Restrictions(knobs=knobs)).operators
    assert left.endpoints == ("small", "embedder")
