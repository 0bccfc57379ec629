"""What a plan costs by the hour and for 1,000 requests, machines and calls together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from circinus.pipelines.errors import InvalidInput, Stopped
from circinus.pipelines.execution.calling import Permit, all_of
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.plan import (
    DemandItem,
    Deployment,
    Outlook,
    Plan,
    PlanCalls,
    with_known_memory,
)
from circinus.pipelines.model.slo import Estimate, HoldsFor, Slo, SloState
from tests.deploy.scheduled_plans import chain, plan_of

CHAIN = PipelineGraph(
    name="ask", operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",)))
)


def estimate(value: float, low: float, high: float, confidence: float = 0.95) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=confidence, inputs=20)


def deployment(share: float = 1.0, replicas: int = 1) -> Deployment:
    return Deployment(
        placement={"a": "edge", "b": "hosted"},
        allocation={"a": 0.5, "b": share},
        replicas={"a": 3, "b": replicas},
        remote=frozenset({"hosted"}),
    )


def plan(requests_per_s: float | None = 2.0) -> Plan:
    """Machines of 3.6 dollars an hour, calls of 0.001 dollars a request, 2 requests a second.

    7,200 requests an hour: calls cost 7.2 dollars an hour, machines 0.5 dollars per 1,000.
    """
    usd = estimate(0.001, 0.0008, 0.0012)
    return Plan(
        pipeline="ask",
        configuration=ConfigurationSpace(CHAIN).configuration(0),
        deployment=deployment(),
        demand=deployment().demand(CHAIN),
        accuracy=estimate(0.9, 0.85, 0.95),
        latency_s=estimate(0.5, 0.4, 0.6),
        cost_usd_per_hour=10.8,
        tier_service_s={"edge": 0.1},
        calls=PlanCalls(usd_per_request=usd, per_request={"small": Usage(calls=1.0, usd=0.001)}),
        calls_usd_per_hour=7.2,
        cost_usd_per_1000_requests=1.5,
        requests_per_s=requests_per_s,
    )


def bound(usd: float | None, holds_for: HoldsFor = HoldsFor.EXAMPLES) -> Slo:
    return Slo(accuracy=0.8, latency_s=1.0, cost_usd_per_1000_requests=usd, holds_for=holds_for)


@pytest.mark.parametrize("usd", [-0.01, float("nan"), float("inf")])
def test_a_bound_on_the_cost_of_requests_must_be_a_number_of_dollars(usd: float) -> None:
    with pytest.raises(InvalidInput, match="cost_usd_per_1000_requests"):
        bound(usd)


def test_nothing_is_an_allowed_bound() -> None:
    assert bound(0.0).cost_usd_per_1000_requests == 0.0


@pytest.mark.parametrize(("share", "replicas"), [(0.5, 1), (1.0, 2)])
def test_nothing_of_a_tier_without_machines_is_shared_or_copied(
    share: float, replicas: int
) -> None:
    with pytest.raises(InvalidInput, match="must be 1 and 1 on hosted, which has no machines"):
        deployment(share, replicas)


def test_a_remote_tier_must_be_one_in_use() -> None:
    with pytest.raises(InvalidInput, match=r"deployment\.remote must be among edge, hosted"):
        replace(deployment(), remote=frozenset({"elsewhere"}))


def test_operators_that_call_ask_for_no_machine() -> None:
    assert deployment().demand(CHAIN) == (DemandItem("edge", 0.5),) * 3


def test_what_calls_cost_does_not_change_what_would_be_deployed() -> None:
    dearer = replace(plan(), calls_usd_per_hour=9.0, cost_usd_per_hour=12.6, calls=None)
    assert dearer.id == plan().id


def test_without_a_bound_nothing_is_said_of_the_cost_of_requests() -> None:
    assert "cost_per_1000" not in plan().states(bound(None))


@pytest.mark.parametrize(
    ("usd", "state"),
    [
        (1.71, SloState.MET),  # 0.5 + 1000 x 0.0012 = 1.7 is the upper end
        (1.69, SloState.LIKELY),
        (1.51, SloState.LIKELY),
        (1.49, SloState.UNPROVEN),
        (1.31, SloState.UNPROVEN),
        (1.29, SloState.VIOLATED),  # 0.5 + 1000 x 0.0008 = 1.3 is the lower one
    ],
)
def test_the_cost_of_requests_is_known_as_well_as_that_of_calls(
    usd: float, state: SloState
) -> None:
    assert plan().states(bound(usd))["cost_per_1000"] is state


@pytest.mark.parametrize(
    ("usd", "state"),
    [
        (12.25, SloState.MET),  # 3.6 + 7.2 x 1.2 = 12.24
        (12.23, SloState.LIKELY),
        (10.8, SloState.LIKELY),
        (10.79, SloState.UNPROVEN),
        (9.37, SloState.UNPROVEN),  # 3.6 + 7.2 x 0.8 = 9.36
        (9.35, SloState.VIOLATED),
    ],
)
def test_an_hour_costs_what_machines_do_and_calls_may(usd: float, state: SloState) -> None:
    slo = Slo(accuracy=0.8, latency_s=1.0, cost_usd_per_hour=usd)
    assert plan().states(slo)["cost"] is state


def test_without_calls_an_hour_costs_what_it_does() -> None:
    rented = replace(plan(), calls=None, calls_usd_per_hour=0.0)
    for usd, state in ((10.8, SloState.MET), (10.79, SloState.VIOLATED)):
        slo = Slo(accuracy=0.8, latency_s=1.0, cost_usd_per_hour=usd)
        assert rented.states(slo)["cost"] is state


def test_machines_used_one_after_the_other_cost_as_uncertain_as_the_latency() -> None:
    known = plan(requests_per_s=None).cost_per_1000()
    # Latency from 0.8 to 1.2 times its value: 0.4 + 0.8 and 0.6 + 1.2.
    assert (known.low, known.high) == pytest.approx((1.2, 1.8))


def test_ahead_the_cost_of_requests_is_that_of_future_inputs() -> None:
    future = Outlook(
        accuracy=estimate(0.9, 0.8, 1.0),
        latency_s=estimate(0.5, 0.3, 0.7),
        usd_per_request=estimate(0.001, 0.0005, 0.0015),
    )
    ahead = replace(plan(), future=future)
    assert ahead.states(bound(1.75))["cost_per_1000"] is SloState.MET
    there = ahead.states(bound(1.75, HoldsFor.FUTURE))
    assert there["cost_per_1000"] is SloState.LIKELY


def test_limits_of_endpoints_bound_what_a_plan_finishes() -> None:
    free = plan()  # 3 copies, 0.1 s each
    assert free.calls is not None
    assert free.throughput_per_s.value == pytest.approx(30.0)
    limited = replace(free, calls=replace(free.calls, most_per_s=4.0))
    assert limited.throughput_per_s.value == pytest.approx(4.0)


def test_dollars_of_machines_are_what_calls_leave() -> None:
    assert plan().machines_usd_per_hour == pytest.approx(3.6)


GRAPH = chain("c", 3)


def plan_memory_plan(configuration: int = 0, **memory_bytes: int) -> Plan:
    """op0 and op2 on the edge, op1 in the cloud; knobs count the last operator's fastest."""
    found = plan_of(GRAPH, ["edge", "cloud", "edge"], {}, {}, configuration)
    return replace(found, memory_bytes=memory_bytes)


def test_a_tier_with_an_operator_that_was_not_measured_has_no_figure() -> None:
    assert plan_memory_plan(op0=5, op1=7).memory_in("edge") is None
    assert plan_memory_plan().memory_in("edge") is None


def test_a_tier_takes_what_the_largest_of_its_operators_takes() -> None:
    found = plan_memory_plan(op0=5, op1=7, op2=6)

    assert (found.memory_in("edge"), found.memory_in("cloud")) == (6, 7)


def test_memory_is_no_part_of_what_a_plan_is() -> None:
    assert plan_memory_plan(op0=5).id == plan_memory_plan().id


def test_what_earlier_plans_know_is_kept_for_the_same_settings_alone() -> None:
    # The second configuration sets op2 alone otherwise.
    earlier = [plan_memory_plan(op0=5, op2=6), plan_memory_plan(op0=4, op1=3)]

    same, other = with_known_memory([plan_memory_plan(op1=9), plan_memory_plan(1)], earlier)

    assert same.memory_bytes == {"op0": 5, "op1": 9, "op2": 6}
    assert other.memory_bytes == {"op0": 5, "op1": 3}


MOST = {"large": Usage(1, 10, 0, 10, 0.5)}
USED = {"large": Usage(1, 5, 0, 1, 0.1)}


@dataclass
class Noting:
    """A gate that tells what it is asked, into a list shared with others."""

    name: str
    told: list[tuple[str, str, object]]
    refuses: bool = False
    fails: bool = False
    open: set[str] = field(default_factory=set)

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        if self.refuses:
            raise Stopped(self.name)
        self.told.append((self.name, "admit", most))
        self.open.add(self.name)
        return Permit(operator=operator, most=most, ticket=self.name)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        self.open.remove(permit.ticket)
        self.told.append((self.name, "settle", used))
        if self.fails:
            raise Stopped(self.name)


def test_what_a_later_gate_refuses_is_given_back_as_not_used() -> None:
    told: list[tuple[str, str, object]] = []
    gates = [Noting("rate", told), Noting("money", told), Noting("last", told, refuses=True)]
    with pytest.raises(Stopped, match="last"):
        all_of(gates).admit("reader", MOST)
    assert told[2:] == [("money", "settle", {}), ("rate", "settle", {})]
    assert not any(gate.open for gate in gates)


def test_a_gate_that_fails_to_settle_keeps_no_other_from_it() -> None:
    told: list[tuple[str, str, object]] = []
    gates = [Noting("rate", told), Noting("money", told, fails=True)]
    both = all_of(gates)
    permit = both.admit("reader", MOST)
    with pytest.raises(Stopped, match="money"):
        both.settle(permit, USED)
    assert not any(gate.open for gate in gates)


def test_all_are_asked_in_order_and_told_what_was_used() -> None:
    told: list[tuple[str, str, object]] = []
    both = all_of([Noting("rate", told), Noting("money", told)])
    permit = both.admit("reader", MOST)
    both.settle(permit, USED)
    assert told == [
        ("rate", "admit", MOST),
        ("money", "admit", MOST),
        ("money", "settle", USED),
        ("rate", "settle", USED),
    ]


def test_one_gate_is_itself() -> None:
    alone = Noting("rate", [])
    assert all_of([alone]) is alone
