"""Where operators may be, by what they call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Endpoint, EndpointCall
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.restrictions import Choice, Restrictions
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.callers import Callers
from circinus.planner.deployment.placement import Placements, placements, placements_of
from tests.oracles.called_problems import GRAPH, SPACE, infrastructure
from tests.oracles.called_problems import placements as oracle_placements
from tests.oracles.synthetic import chain

WHERE = infrastructure(np.random.default_rng(0))


def remote(name: str, *endpoints: str) -> Tier:
    return Tier(name=name, endpoints=tuple(Endpoint(name=each) for each in endpoints))


def joined(*tiers: Tier) -> Infrastructure:
    links = tuple(
        Link(between=(tiers[0].name, tier.name), bandwidth_bytes_per_s=1e6) for tier in tiers[1:]
    )
    return Infrastructure(name="joined", tiers=tiers, links=links)


def spots(graph: PipelineGraph, where: Infrastructure) -> tuple[Callers, Placements]:
    callers = Callers.of(graph, where, Restrictions())
    return callers, placements_of(callers, graph, where)


@given(st.integers(0, SPACE.size - 1))
def test_a_configuration_may_be_wherever_its_calls_and_machines_are(number: int) -> None:
    callers, every = spots(GRAPH, WHERE)
    configuration = SPACE.configuration(number)
    mine = every.where(callers, callers.called(configuration))
    assert sorted(map(tuple, mine.tiers.tolist())) == sorted(
        oracle_placements(WHERE, configuration)
    )
    # A caller takes nothing of a machine, an operator that calls nothing all of one.
    on_machines = np.array([tier.machines > 0 for tier in WHERE.tiers])
    assert ((mine.widths > 0) <= on_machines).all()


def test_equal_questions_have_one_answer() -> None:
    callers, every = spots(GRAPH, WHERE)
    called = [callers.called(SPACE.configuration(n)) for n in range(SPACE.size)]
    found = {id(every.where(callers, one)) for one in called}
    assert len(found) == len(set(called)) == 3  # own, small, large


def test_who_calls_nothing_is_placed_as_before() -> None:
    graph, where = chain(2, 3), joined(Tier(name="edge"), Tier(name="cloud"))
    with_remote = joined(*where.tiers, remote("hosted", "small"))
    callers, found = spots(graph, with_remote)
    assert not callers.any_calls
    assert found.tiers.tolist() == placements(graph, where).tiers.tolist()


def test_endpoints_of_one_run_must_be_on_one_tier() -> None:
    both = OperatorSpec(name="ask", calls=("small", "large"))
    graph = PipelineGraph(name="g", operators=(both,))
    apart = joined(Tier(name="edge"), remote("near", "small"), remote("far", "large"))
    message = r"which are: near \(small\); far \(large\), got \['small', 'large'\]"
    with pytest.raises(InvalidInput, match=message):
        Callers.of(graph, apart, Restrictions())
    together = joined(Tier(name="edge"), remote("near", "small", "large", "other"))
    assert Callers.of(graph, together, Restrictions()).choices() == [[1]]


def test_settings_decide_by_all_knobs_that_a_call_names() -> None:
    knobs = (Knob(name="a", values=(0, 1)), Knob(name="b", values=("x", "y")))
    calls = (EndpointCall(endpoint="small", when={"a": 1, "b": "y"}),)
    graph = PipelineGraph(name="g", operators=(OperatorSpec(name="o", knobs=knobs, calls=calls),))
    callers = Callers.of(graph, joined(Tier(name="edge"), remote("near", "small")), Restrictions())
    space = ConfigurationSpace(graph)
    called = [callers.called(space.configuration(n)) for n in range(4)]
    assert [bool(one[0]) for one in called] == [False, False, False, True]


def test_all_faults_are_told_at_once() -> None:
    operators = tuple(OperatorSpec(name=name, calls=(name,)) for name in ("a", "b"))
    graph = PipelineGraph(name="g", operators=operators)
    with pytest.raises(InvalidInput) as told:
        Callers.of(graph, joined(Tier(name="edge")), Restrictions())
    assert [violation.field for violation in told.value.violations] == [
        "operator a.calls",
        "operator b.calls",
    ]


def test_a_pipeline_that_only_calls_needs_no_machine() -> None:
    graph = PipelineGraph(name="g", operators=(OperatorSpec(name="ask", calls=("small",)),))
    _, found = spots(graph, joined(Tier(name="edge", machines=0), remote("near", "small")))
    assert found.tiers.tolist() == [[1]]
    assert found.widths.tolist() == [[0, 0]]


def test_data_may_go_to_a_remote_tier_and_back_but_not_down_when_placements_are_many() -> None:
    operators = [
        OperatorSpec(name=f"o{i}", after=(f"o{i - 1}",) if i else (), calls=("small",) * (i == 1))
        for i in range(3)
    ]
    graph = PipelineGraph(name="g", operators=tuple(operators))
    where = joined(Tier(name="edge"), Tier(name="cloud"), remote("near", "small"))
    callers = Callers.of(graph, where, Restrictions())
    found = placements_of(callers, graph, where, most=3).tiers.tolist()
    assert found == [[0, 2, 0], [0, 2, 1], [1, 2, 1]]  # not [1, 2, 0]


def test_settings_left_without_a_placement_that_goes_up_are_refused() -> None:
    own = Knob(name="model", values=("own", "small"))
    operators = (
        OperatorSpec(name="a", knobs=(own,), calls=("small",)),
        OperatorSpec(name="b", after=("a",)),
        OperatorSpec(name="c", after=("b",)),
        OperatorSpec(name="d", after=("c",)),
    )
    graph = PipelineGraph(name="g", operators=operators)
    where = joined(Tier(name="edge"), Tier(name="cloud"), remote("near", "small"))
    tiers = {"a": Choice(only=("cloud", "near")), "b": Choice(only=("edge",))}
    callers = Callers.of(graph, where, Restrictions(tiers=tiers))
    every = placements_of(callers, graph, where, most=7)
    space = ConfigurationSpace(graph)
    assert len(every.where(callers, callers.called(space.configuration(1)))) == 3
    with pytest.raises(InvalidInput, match="that never sends data back down"):
        every.where(callers, callers.called(space.configuration(0)))
