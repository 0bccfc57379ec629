"""Leave to call is given as long as there is money, whatever comes between asking and settling."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from hypothesis import given

from circinus.pipelines.errors import InvalidInput, Stopped, Unaffordable
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, EndpointCall, Usage
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.profiler.spending import MemoryLedger, SpendingGate, require_bounded

BY_TOKEN = CallPrice(input_usd_per_million=1.0, output_usd_per_million=4.0)


def most(usd: float) -> dict[str, Usage]:
    return {"large": Usage(1, 100, 0, 10, usd)}


def test_a_call_that_costs_more_than_is_left_ends_what_runs() -> None:
    gate = SpendingGate(MemoryLedger(), 1.0)
    permit = gate.admit("reader", most(0.75))
    gate.settle(permit, most(0.75))
    told = "a call of reader may cost 0.5 USD, 0.25 USD are left"
    with pytest.raises(Unaffordable, match=re.escape(told)):
        gate.admit("reader", most(0.5))
    gate.settle(gate.admit("reader", most(0.25)), most(0.25))


def test_a_call_without_bound_is_not_made_where_money_is_capped() -> None:
    with pytest.raises(Unaffordable):
        SpendingGate(MemoryLedger(), 1e9).admit("reader", most(float("inf")))
    SpendingGate(MemoryLedger()).admit("reader", most(float("inf")))


def test_what_machines_cost_is_not_there_for_calls() -> None:
    gate = SpendingGate(MemoryLedger(), 1.0, price_usd_per_hour=3600.0)
    gate.ran(0.5)
    with pytest.raises(Unaffordable):
        gate.admit("reader", most(0.75))
    gate.settle(gate.admit("reader", most(0.5)), most(0.1))
    gate.ran(10.0)
    with pytest.raises(Unaffordable):
        gate.admit("reader", most(0.01))


def test_what_dead_processes_reserved_is_not_there_either() -> None:
    ledger = MemoryLedger()
    assert ledger.reserve(Permit(operator="reader", most=most(0.75), ticket="dead"), 1.0)
    with pytest.raises(Unaffordable):  # nobody here will settle it
        SpendingGate(ledger, 1.0).admit("reader", most(0.5))


def test_money_that_others_have_reserved_is_waited_for() -> None:
    gate = SpendingGate(MemoryLedger(), 1.0)
    first = gate.admit("reader", most(0.75))
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(gate.admit, "reader", most(0.75))
        time.sleep(0.05)
        assert not second.done()
        gate.settle(first, most(0.125))
        assert second.result(10).most == most(0.75)


def test_money_that_others_really_spend_is_given_up() -> None:
    gate = SpendingGate(MemoryLedger(), 1.0)
    first = gate.admit("reader", most(0.75))
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(gate.admit, "reader", most(0.75))
        gate.settle(first, most(0.75))
        with pytest.raises(Unaffordable):
            second.result(10)


def test_who_waits_for_money_hears_that_it_is_over() -> None:
    gate, over = SpendingGate(MemoryLedger(), 1.0), threading.Event()
    gate.stop_when(over.is_set)
    gate.admit("reader", most(1.0))
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(gate.admit, "reader", most(0.5))
        over.set()
        with pytest.raises(Stopped, match="reader was not run any more"):
            second.result(10)


@given(
    st.lists(
        st.tuples(st.floats(0.01, 2.0), st.floats(0.0, 1.0), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.floats(0.0, 5.0),
)
def test_no_more_is_paid_than_there_is_whoever_dies(
    calls: list[tuple[float, float, bool]], limit: float
) -> None:
    ledger, charged = MemoryLedger(), 0.0
    for largest, part, dies in calls:
        gate = SpendingGate(ledger, limit)  # of a process that may die in its call
        try:
            permit = gate.admit("reader", most(largest))
        except Unaffordable:
            continue
        charged += largest * part
        if not dies:
            gate.settle(permit, most(largest * part))
    paid = sum(spent.usd for spent in ledger.spent().values())
    assert charged <= paid + 1e-9
    assert paid <= limit + 1e-9


def reader(*endpoints: str) -> OperatorSpec:
    return OperatorSpec(
        name="reader", knobs=(Knob(name="model", values=(*endpoints, "own")),), calls=endpoints
    )


def test_an_endpoint_that_is_not_bounded_is_refused_where_money_is_capped() -> None:
    endpoints = [Endpoint(name="large", price=BY_TOKEN, most_input_tokens=10)]
    told = (
        "endpoint large.most_output_tokens must be given while limits.profiling_usd is: "
        "reader calls it, got None."
    )
    with pytest.raises(InvalidInput, match=re.escape(told)):
        require_bounded([reader("large")], endpoints, 1.0)
    require_bounded([reader("large")], endpoints, None)


def test_an_endpoint_that_nothing_calls_may_be_without_bound() -> None:
    endpoints = [Endpoint(name="large", price=BY_TOKEN), Endpoint(name="small")]
    require_bounded([reader("small")], endpoints, 1.0)
    ruled_out = OperatorSpec(
        name="reader",
        knobs=(Knob(name="model", values=("own",)),),
        calls=(EndpointCall(endpoint="small"),),
    )
    require_bounded([ruled_out], endpoints, 1.0)


def test_an_endpoint_that_is_not_there_is_refused() -> None:
    told = "operator reader.calls must be an endpoint of a remote tier (small), got 'large'."
    with pytest.raises(InvalidInput, match=re.escape(told)):
        require_bounded([reader("large")], [Endpoint(name="small")], None)
