"""Four valid queries with every number at an end, and ordinary ones beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from circinus.api.phases import SETTLED, QueryPhase
from circinus.pipelines.ranges import Range
from tests.api.test_ranges import NUMBERS
from tests.e2e.service_process import serving

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: device, machines: 1, dedicated: true}
  - {name: edge, machines: 2, price_usd_per_hour: 0.1}
  - {name: cloud, machines: 4, price_usd_per_hour: 1.0}
links:
  - {between: [device, edge], bandwidth_mbit_per_s: 100, delay_s: 0.001}
  - {between: [device, cloud], bandwidth_mbit_per_s: 100, delay_s: 0.001}
  - {between: [edge, cloud], bandwidth_mbit_per_s: 100, delay_s: 0.001}
"""
OVER = {phase.value for phase in SETTLED | {QueryPhase.WAITING}}
ENDS: Mapping[str, Callable[[int, Range], float]] = {
    "least": lambda i, within: within.least,
    "most": lambda i, within: within.most,
    "by turns": lambda i, within: within.most if i % 2 else within.least,
    "by turns, the other way": lambda i, within: within.least if i % 2 else within.most,
}
LENIENT = ("slo.latency_s", "slo.cost_usd_", "limits.")
"""Numbers that are at their most in turns, too: else nothing of such a query would be planned."""
OTHERS = {
    "least": {"seed": 0, "priority": 0},
    "most": {"seed": 2**63 - 1, "priority": 9},
    "by turns": {"seed": 2**63 - 1, "priority": 0},
    "by turns, the other way": {"seed": 0, "priority": 9},
}


def extreme(which: str) -> dict[str, Any]:
    """Return what a query says beyond pipeline and data."""
    told: dict[str, Any] = {"slo": {"accuracy": 1.0 if "most" in which else 0.0}, **OTHERS[which]}
    for i, (path, within) in enumerate(NUMBERS.items()):
        top, _, field = path.partition(".")
        at = "most" if "turns" in which and path.startswith(LENIENT) else which
        value = ENDS[at](i, within)
        if field:
            told.setdefault(top, {})[field] = value
        else:
            told[top] = value
    return told


@pytest.mark.slow
def test_queries_with_every_number_at_an_end_keep_no_other_from_being_served(
    tmp_path: Path,
) -> None:
    with serving(
        tmp_path, INFRASTRUCTURE, "tests.e2e.slow_sum:pipeline", planning_workers="1"
    ) as service:
        before = service.submit(data={"examples": 12})
        extremes = [service.submit(data={"examples": 12}, **extreme(which)) for which in ENDS]
        after = service.submit(data={"examples": 12}, seed=1)
        for query_id in (before, after):
            service.wait_for_phase(query_id, "serving")
            answer = service.ask(
                "POST", f"/v1/queries/{query_id}/requests", json={"input": {"value": 4}}
            )
            assert answer.status_code == 200, answer.text
        for query_id in extremes:
            service.wait_for(
                lambda query_id=query_id: service.query(query_id)["phase"] in OVER,  # type: ignore[misc]
                f"{query_id} to come to an end",
            )
        told = [(q["phase"], q["message"]) for q in map(service.query, extremes)]
        assert all(phase != "failed" for phase, _ in told), told
        # By turns, one with the most requests, more than there are machines for, and one served.
        assert [phase for phase, _ in told][2:] == ["infeasible", "serving"], told
        assert service.query(before)["phase"] == service.query(after)["phase"] == "serving"
