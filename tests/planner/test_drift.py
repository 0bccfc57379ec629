from dataclasses import replace

import numpy as np
import pytest

from pipelines.configuration import Configuration
from pipelines.errors import InvalidInput
from pipelines.plan import DemandItem, Deployment, Plan
from pipelines.presets import PRESETS
from pipelines.profile import FloatArray
from pipelines.slo import Estimate, Slo
from planner.drift import Drift, DriftSettings, Seen, as_observed, drifted

THREE = PRESETS["three-tier"]  # device, mec, cloud
SLO = Slo(accuracy=0.8, latency_s=0.5)


def _plan(tier: str = "mec") -> Plan:
    return Plan(
        pipeline="p",
        configuration=Configuration(()),
        deployment=Deployment(
            placement={"a": "device", "b": tier},
            allocation={"a": 1.0, "b": 1.0},
            replicas={"a": 1, "b": 1},
        ),
        demand=(DemandItem("device", 1.0), DemandItem(tier, 1.0)),
        accuracy=Estimate(value=0.9, low=0.85, high=0.95, confidence=0.95, inputs=20),
        latency_s=Estimate(value=0.4, low=0.38, high=0.42, confidence=0.95, inputs=20),
        cost_usd_per_hour=2.5,
        tier_service_s={"device": 0.1, tier: 0.2},  # and 0.1 s on the way
    )


def _seen(
    latency: float = 0.4,
    n: int = 40,
    *,
    scores: FloatArray | None = None,
    tier_s: dict[str, float] | None = None,
    moved_s: float = 0.1,
) -> Seen:
    noise = 0.01 * np.where(np.arange(n) % 2, 1, -1)
    return Seen(
        latency_s=latency + noise,
        tier_s=tier_s or {"device": 0.1, "mec": 0.2},
        moved_s=moved_s,
        scores=np.zeros(0) if scores is None else scores,
    )


@pytest.mark.parametrize(
    ("field", "value"), [("least", 1), ("confidence", 1.0), ("noticeable", 1.0)]
)
def test_settings_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"drift.{field} must be"):
        DriftSettings(**{field: value})  # type: ignore[arg-type]  # a number of either kind


def test_what_is_as_planned_has_not_drifted() -> None:
    assert drifted(_plan(), SLO, _seen()) is None


def test_worse_than_planned_but_within_the_slo_is_left_alone() -> None:
    assert drifted(_plan(), SLO, _seen(0.48)) is None


def test_the_bound_itself_is_no_drift() -> None:
    exact = replace(_seen(), latency_s=np.full(40, 0.5))
    assert drifted(_plan(), SLO, exact) is None
    assert drifted(_plan(), SLO, _seen(scores=np.full(40, 0.8))) is None


def test_a_few_late_requests_prove_nothing() -> None:
    assert drifted(_plan(), SLO, _seen(0.9, n=19)) is None
    assert drifted(_plan(), SLO, _seen(0.9, n=20)) is not None


def test_a_drift_of_links_is_told_with_its_figures() -> None:
    drift = drifted(_plan(), SLO, _seen(0.8, moved_s=0.5))
    assert drift is not None
    assert (drift.latency, drift.accuracy) == (True, False)
    assert drift.words == "latency is 0.8 s, planned were 0.4 s, allowed are 0.5 s"
    assert drift.links == pytest.approx(5.0)
    assert drift.tiers == {}


def test_a_slower_tier_is_told_apart_from_slower_links() -> None:
    drift = drifted(_plan(), SLO, _seen(0.8, tier_s={"device": 0.1, "mec": 0.6}))
    assert drift is not None
    assert drift.tiers == {"mec": pytest.approx(3.0)}
    assert drift.links == 1.0


def test_accuracy_drifts_when_known_outputs_say_so() -> None:
    wrong = np.array([1.0, 0.0, 0.0] * 10)
    drift = drifted(_plan(), SLO, _seen(scores=wrong))
    assert drift is not None
    assert (drift.latency, drift.accuracy) == (False, True)
    assert "accuracy is 0.3333" in drift.words


def test_the_observed_world_has_thinner_links_on_the_plans_ways_alone() -> None:
    drift = Drift(latency=True, accuracy=False, words="", tiers={"mec": 2.0}, links=4.0)
    world = as_observed(THREE, _plan(), drift)
    assert world.tier("mec").speed_factor == THREE.tier("mec").speed_factor / 2
    assert world.links[0].bandwidth_bytes_per_s == THREE.links[0].bandwidth_bytes_per_s / 4
    assert world.links[0].delay_s == THREE.links[0].delay_s * 4
    assert world.links[1] == THREE.links[1]  # mec to cloud is not on its way
    both = as_observed(THREE, _plan("cloud"), drift)
    assert both.links[1].bandwidth_bytes_per_s == THREE.links[1].bandwidth_bytes_per_s / 4
    nothing = Drift(latency=False, accuracy=True, words="")
    assert as_observed(THREE, _plan(), nothing) is THREE
