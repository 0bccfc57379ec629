"""The demo's input: four queries of `digits`, and the tiers that three of them compete for.

Prices follow speed, as on a price list: a machine of the cloud is about 17 times as fast as one
of the edge and costs 20 times as much, and a device costs its power and wear. Devices and edge
are slowed by waiting, so that the tier of a plan shows in its latency.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from circinus.api.phases import QueryPhase
from circinus.api.schemas.query import (
    DataSource,
    KnobChoice,
    LimitsRequest,
    QueryRequest,
    RestrictionsRequest,
    SloRequest,
    TierChoice,
)
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.restrictions import Stays
from circinus.pipelines.model.slo import HoldsFor, LatencyStatistic
from circinus.pipelines.model.tiers import Tier

PIPELINE = "digits"
PLANNING_SEED = 11  # of the inputs that are planned on
HELD_OUT_SEED = 12  # of the inputs that requests are made of: none of them was planned on
INPUTS = 40
EXAMPLES = 40  # that requests are made of, and requests to each query
CONTESTED = "edge"  # the tier that machines are taken from
THINNED = ("device", "edge")  # the link that becomes thinner
THIN_MBIT_PER_S = 1.0  # then: a clip takes longer than DRIFTING allows for everything
_PROFILING_S = _RESPONSE_S = 30.0  # not reached on an idle computer; a busy one may take this long
_DURATION_S = 1800.0  # what a cheaper plan saves by then is not worth long planning
_TIERS = {  # machines, dollars per hour, speed
    "device": (1, 0.02, 0.03),
    "edge": (2, 0.10, 0.06),
    "cloud": (1, 2.00, 1.0),
}
_NEVER = TierChoice(never=["device"])
_NO_CNN = {"classifier": {"model": KnobChoice(never=["cnn"])}}  # its library loads for two seconds
_KNOBS = {**_NO_CNN, "locator": {"method": KnobChoice(only=["match"])}}  # digits are anywhere
_HALVED = {**_KNOBS, "sampler": {"scale": KnobChoice(only=[0.5])}}
_NOT_HANDED_OUT = RestrictionsRequest(
    tiers={"locator": _NEVER, "classifier": _NEVER}, knobs=_KNOBS
)
_FEW = {  # 18 configurations: all are measured, and the answer is sure at once
    **_NO_CNN,
    "sampler": {"stride": KnobChoice(only=[12]), "scale": KnobChoice(only=[1.0])},
    "denoiser": {"kind": KnobChoice(only=["none"])},
    "features": {"kind": KnobChoice(only=["pool8"])},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCase:
    """One query of the demo."""

    name: str  # for people
    story: str  # what it is about, in a few words
    slo: SloRequest
    restrictions: RestrictionsRequest = field(default_factory=lambda: _NOT_HANDED_OUT)
    ends: QueryPhase = QueryPhase.SERVING  # the phase that it must reach

    @property
    def request(self) -> QueryRequest:
        """What is submitted."""
        return QueryRequest(
            pipeline=PIPELINE,
            data=DataSource(examples=INPUTS, seed=PLANNING_SEED),
            slo=self.slo,
            limits=LimitsRequest(profiling_s=_PROFILING_S, response_s=_RESPONSE_S),
            duration_s=_DURATION_S,
            restrictions=self.restrictions,
        )


DRIFTING = DemoCase(
    name="careful",
    story="accurate; whole clips go to the cloud while links are thick",
    slo=SloRequest(accuracy=0.7, latency_s=0.3, holds_for=HoldsFor.FUTURE),
)
"""The query that the thinner link hits."""

CASES = (
    DemoCase(
        name="frugal",
        story="may not cost what the cloud does, so the edge",
        slo=SloRequest(  # in the cloud the least share costs more
            accuracy=0.6,
            latency_s=0.24,
            latency_statistic=LatencyStatistic.P50,
            cost_usd_per_hour=0.09,
            holds_for=HoldsFor.FUTURE,
        ),
    ),
    DemoCase(
        name="private",
        story="nothing may leave its device, which halves clips",
        slo=SloRequest(accuracy=0.6, latency_s=0.36, holds_for=HoldsFor.FUTURE),
        restrictions=RestrictionsRequest(stays_on_device=Stays.EVERYTHING, knobs=_HALVED),
    ),
    DRIFTING,
    DemoCase(
        name="impossible",
        story="nothing is that fast",
        slo=SloRequest(accuracy=0.7, latency_s=0.0001),
        restrictions=RestrictionsRequest(knobs=_FEW),
        ends=QueryPhase.INFEASIBLE,
    ),
)
"""Three that compete, and one that nothing can meet."""


def demo_infrastructure() -> Infrastructure:
    """Return the preset `local` with unlike tiers, at prices that follow their speed."""
    local = PRESETS["local"]
    return replace(local, name="demo", tiers=tuple(map(_priced, local.tiers)))


def _priced(tier: Tier) -> Tier:
    machines, price, speed = _TIERS[tier.name]
    # Waiting slows operators down, not the calls of an instance: those take as long as before.
    slower = speed / tier.speed_factor
    return replace(
        tier,
        machines=machines,
        price_usd_per_hour=price,
        speed_factor=speed,
        call_s=tier.call_s * slower,
        call_s_per_byte=tier.call_s_per_byte * slower,
    )
