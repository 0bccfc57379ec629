"""What planning is expected to spend on calls, as the command line tells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circinus.api.text import formats
from circinus.planner.search.bill import Bill, CallsCost, Cost, Forecast
from tests.api.cli.commands import adder_query, invoke

PIPELINE = """
from circinus import report_usage
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.execution.pipeline import Pipeline


def add(inputs, knobs):
    report_usage("hosted", input_tokens=100, output_tokens=10)
    return inputs + 1


def adder():
    return Pipeline(
        name="adder",
        operators=(Operator(spec=OperatorSpec(name="add", calls=("hosted",)), run=add),),
        score=lambda output, expected: float(output == expected),
    )
"""
INFRASTRUCTURE = """
name: with-a-model
origin: office
tiers:
  - {name: office, machines: 1, price_usd_per_hour: 1}
  - name: api
    endpoints:
      - name: hosted
        price: {call_usd: 0.01}
        most_input_tokens: 1000
        most_output_tokens: 100
links:
  - {between: [office, api], bandwidth_mbit_per_s: 50, delay_s: 0.001}
"""


def test_what_is_expected_tells_calls_tokens_and_dollars_of_each_operator() -> None:
    low = CallsCost(operator="read", calls=10.0, input_tokens=1000.0, output_tokens=80.0, usd=0.5)
    high = CallsCost(
        operator="read", calls=40.0, input_tokens=4000.0, output_tokens=320.4, usd=2.0
    )
    rare = CallsCost(operator="check", calls=3.0, usd=0.03)
    bill = Bill(
        forecast=Forecast(
            low=Cost.of(20, 2.0, 0.0, calls_s=1.0, calls=(low,)),
            expected=Cost.of(40, 4.0, 0.0, calls_s=1.0, calls=(low,)),
            high=Cost.of(80, 8.0, 0.0, calls_s=1.0, calls=(high, rare)),
            confidence=0.8,
            source="probes",
        )
    )
    told = list(formats.bill_lines(bill))
    assert told[0].startswith("expected: 20-80 operator runs, 2.00 s - 8.00 s, $0.5000 - $2.03 ")
    assert told[1] == (
        "  of it read: 10-40 calls, 1,000-4,000 tokens read and 80-320 written, $0.5000 - $2.00"
    )
    assert told[2].startswith("  of it check: 0-3 calls, 0-0 tokens read")
    assert told[3].startswith("paid: ")


@pytest.mark.parametrize(("cap", "least", "most"), [(0.1, 10, 10), (100.0, 30, 48)])
def test_an_estimate_tells_what_calls_will_cost_and_stays_below_the_cap(
    folder: Path, cap: float, least: int, most: int
) -> None:
    (folder / "my_pipelines.py").write_text(PIPELINE)
    (folder / "model.yaml").write_text(INFRASTRUCTURE)
    adder_query(folder, limits={"profiling_usd": cap})
    sums = [json.dumps({"input": i, "expected": i + 1}) for i in range(400)]
    (folder / "sums.jsonl").write_text("\n".join(sums))
    asked = ("plan", "adder.yaml", "--infrastructure", "model.yaml", "--estimate")
    result = invoke(*asked, "--executor", "in-process", "--json")
    assert result.exit_code == 0, result.output
    forecast = json.loads(result.stdout)["bill"]["forecast"]
    # One configuration on 30, 38 and 48 inputs, as the root of 400 is 20: a cent a call.
    low, high = (forecast[end] for end in ("low", "high"))
    (add,) = high["calls"]
    assert add["operator"] == "add"
    assert (low["calls"][0]["calls"], add["calls"]) == pytest.approx((least, most))
    assert (add["input_tokens"], add["output_tokens"]) == pytest.approx((100 * most, 10 * most))
    assert high["usd"] == pytest.approx(0.01 * most)  # no machine's seconds are in it
    lines = invoke(*asked, "--executor", "in-process").stdout
    read, written = (f"{each * least:,}-{each * most:,}" for each in (100, 10))
    line = f"of it add: {least}-{most} calls, {read} tokens read and {written} written"
    assert line in " ".join(lines.split())
