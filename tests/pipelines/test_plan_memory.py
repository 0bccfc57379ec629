"""What is known of the memory of a plan's operators, and what is not."""

from __future__ import annotations

from dataclasses import replace

from circinus.pipelines.model.plan import Plan, with_known_memory
from tests.deploy.scheduled_plans import chain, plan_of

GRAPH = chain("c", 3)


def plan(configuration: int = 0, **memory_bytes: int) -> Plan:
    """op0 and op2 on the edge, op1 in the cloud; knobs count the last operator's fastest."""
    found = plan_of(GRAPH, ["edge", "cloud", "edge"], {}, {}, configuration)
    return replace(found, memory_bytes=memory_bytes)


def test_a_tier_with_an_operator_that_was_not_measured_has_no_figure() -> None:
    assert plan(op0=5, op1=7).memory_on("edge") is None
    assert plan().memory_on("edge") is None


def test_a_tier_takes_what_the_largest_of_its_operators_takes() -> None:
    found = plan(op0=5, op1=7, op2=6)

    assert (found.memory_on("edge"), found.memory_on("cloud")) == (6, 7)


def test_memory_is_no_part_of_what_a_plan_is() -> None:
    assert plan(op0=5).id == plan().id


def test_what_earlier_plans_know_is_kept_for_the_same_settings_alone() -> None:
    # The second configuration sets op2 alone otherwise.
    earlier = [plan(op0=5, op2=6), plan(op0=4, op1=3)]

    same, other = with_known_memory([plan(op1=9), plan(1)], earlier)

    assert same.memory_bytes == {"op0": 5, "op1": 9, "op2": 6}
    assert other.memory_bytes == {"op0": 5, "op1": 3}
