from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import DeviceProfile, with_device
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.restrictions import (
    Choice,
    Restrictions,
    Stays,
    allowed_tiers,
    restricted_graph,
    words,
)

THREE = PRESETS["three-tier"]  # device, mec, cloud
GRAPH = PipelineGraph(
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
        restricted_graph(GRAPH, Restrictions(knobs=knobs))


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
        allowed_tiers(GRAPH, THREE, restrictions)


def test_every_fault_is_told_at_once() -> None:
    knobs = {"a": {"k": Choice(only=(9,))}, "b": {"z": Choice(only=(1,))}}
    with pytest.raises(InvalidInput) as caught:
        restricted_graph(GRAPH, Restrictions(knobs=knobs))
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
        return list(allowed_tiers(GRAPH, THREE, Restrictions(stays_on_device=stays)))

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
    narrow = ConfigurationSpace(restricted_graph(GRAPH, Restrictions(knobs=choices)))
    whole = ConfigurationSpace(GRAPH)
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
        DeviceProfile(**{field: 0.0})


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
