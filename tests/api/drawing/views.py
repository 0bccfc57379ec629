"""Views to draw, and what is asked of every drawing."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

from circinus.api.schemas.plans import DemandView, EstimateView, PlanView
from circinus.api.schemas.progress import TrialView
from circinus.api.schemas.query import SloRequest
from circinus.planner.search.result import TrialState

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '"><script>alert(1)</script><style>*{display:none}</style>&<!--'
SLO = SloRequest(accuracy=0.8, latency_s=0.05, cost_usd_per_hour=0.3)


def estimate(value: float | None) -> EstimateView:
    return EstimateView(value=value, low=value, high=value, confidence=0.95, inputs=20)


def plan(
    name: str, accuracy: float | None, latency_s: float, cost: float, *, tier: str = "edge"
) -> PlanView:
    return PlanView(
        id=name,
        pipeline="add",
        configuration={"first": {"size": 2}},
        placement={"first": tier},
        allocation={"first": 0.5},
        replicas={"first": 1},
        demand=[DemandView(tier=tier, share=0.5)],
        accuracy=estimate(accuracy),
        latency_s=estimate(latency_s),
        cost_usd_per_hour=cost,
    )


def trial(
    state: TrialState, accuracy: float | None, cost: float | None, spent_s: float, name: str = "x"
) -> TrialView:
    return TrialView(
        configuration={name: {"size": 2}},
        inputs=20,
        state=state,
        plan_id="p-of-it" if state is TrialState.FEASIBLE else None,
        accuracy=None if accuracy is None else estimate(accuracy),
        latency_s=None if cost is None else estimate(0.02),
        cost_usd_per_hour=cost,
        spent_s=spent_s,
        elapsed_s=spent_s,
    )


def parsed(svg: str) -> Element:
    """Return the root of a drawing, which must keep to what every drawing keeps to."""
    root = fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") in ("img", "group")
    title, told = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and title.text  # noqa: PT018 - for the type checker
    assert told is not None and told.text  # noqa: PT018 - for the type checker
    for each in root.iter():
        assert each.tag.removeprefix(SVG) not in ("script", "style", "foreignObject")
        assert not [name for name in each.attrib if name == "style" or name.startswith("on")]
        assert not {"nan", "inf"} & {each.get(name) for name in ("x", "y", "cx", "cy", "width")}
    return root


def of_class(root: Element, name: str) -> list[Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def texts(root: Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]
