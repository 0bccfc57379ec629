"""Pictures of ramps: a unit that breaks, one that never answers, one with more in it."""

from __future__ import annotations

from math import inf, nan
from xml.etree import ElementTree

import pytest

from circinus.api.drawing.ramp import ramp_chart
from circinus.api.schemas.routes import BreakingPointView, RampStepView
from circinus.scheduler.routing.breaking_point import BreakingReason


def step(per_s: float, p95_s: float) -> RampStepView:
    return RampStepView(
        per_s=per_s,
        requests=100,
        failed=0,
        served_per_s=min(per_s, 50.0),
        mean_s=nan if p95_s == inf else p95_s / 3,
        p50_s=p95_s / 2,
        p95_s=p95_s,
        busy=None,
        broken_by=[],
        sure=True,
    )


def view(**changes: object) -> BreakingPointView:
    steps = [step(20.0, 0.05), step(40.0, 0.1), step(60.0, 4.0)]
    told: dict[str, object] = {"unit": "g5 & more", "per_s": 40.0, "low_per_s": 20.0}
    told |= {"high_per_s": 60.0, "reasons": [BreakingReason.LATENCY], "at": steps[1]}
    told |= {"usd_per_1000": None, "latency_s": 0.2, "steps": steps, "late": [], "failure": ""}
    return BreakingPointView.model_validate(told | {"pool": []} | changes)


def words(found: BreakingPointView) -> str:
    return " ".join(ElementTree.fromstring(ramp_chart(found)).itertext())


def test_a_point_is_told_with_its_interval() -> None:
    told = words(view())
    assert "g5 & more: 40/s (20 to 60)" in told
    assert "allowed" in told


def test_what_is_far_beyond_is_cut_off() -> None:
    assert "1000" in words(view())  # five times what is allowed, in ms
    assert "4000" not in words(view())
    assert "4000" in words(view(latency_s=None))


@pytest.mark.parametrize("p95_s", [0.05, inf])
def test_a_single_step_is_drawn_whether_it_was_answered_or_not(p95_s: float) -> None:
    found = view(steps=[step(20.0, p95_s)], at=None, per_s=0.0, low_per_s=0.0, high_per_s=None)
    assert "0/s (0 to more)" in words(found)
