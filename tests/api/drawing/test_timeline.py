"""The timeline of a plan: bars in the order of the data, transfers between tiers."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import pytest

from circinus.api.drawing.timeline import timeline_svg
from circinus.api.schemas.explanation import ExplanationView
from circinus.planner.answers.explaining import OperatorPart
from tests.api.drawing.views import HOSTILE, SVG, of_class, parsed, plan, texts


def part(
    name: str, tier: str, after: str = "", *, seconds: float = 1.0, way: float = 0.0
) -> OperatorPart:
    return OperatorPart(
        operator=name,
        after=tuple(after.split()),
        tier=tier,
        share=0.5,
        knobs={"size": 2},
        seconds=seconds,
        transfer_s=way,
        cost_usd_per_hour=0.1,
    )


def drawn(*parts: OperatorPart, bound_s: float | None = None) -> Element:
    mine = plan("p-1", 0.9, 0.1, 0.1)
    view = ExplanationView(plan=mine, operators=[*parts], alternatives=[], ruled_out=[])
    return parsed(timeline_svg(mine, view, bound_s))


def bars(root: Element) -> list[tuple[float, float, float]]:
    """Return left end, right end and height of each bar."""
    found = [each.find(f"{SVG}rect") for each in of_class(root, "operator")]
    figures = [[float(r.get(n, "")) for n in ("x", "width", "y")] for r in found if r is not None]
    return [(x, x + width, y) for x, width, y in figures]


def test_names_of_others_stay_words() -> None:
    drawn(part(HOSTILE, HOSTILE, seconds=100.0))


def test_an_operator_starts_when_its_data_has_arrived() -> None:
    root = drawn(part("a", "device"), part("b", "edge", "a", way=0.5), part("c", "edge", "b"))
    a, b, c = bars(root)
    second = a[1] - a[0]
    assert b[0] == pytest.approx(a[1] + second / 2, abs=0.1)  # half a second on the way
    assert c[0] == pytest.approx(b[1], abs=0.1)
    assert (b[2], a[2] < b[2]) == (c[2], True)  # a lane for each tier
    (way,) = of_class(root, "transfer")
    assert way.findtext(f"{SVG}title") == "data arrives at b in 500 ms"
    assert [name for name in texts(root) if name in ("device", "edge")] == ["device", "edge"]


def test_operators_at_once_on_a_tier_have_rows_of_their_own() -> None:
    root = drawn(
        part("a", "edge"), part("b", "edge", "a"), part("c", "edge", "a"), part("d", "edge", "b c")
    )
    a, b, c, d = bars(root)
    assert b[0] == c[0]
    assert len({b[2], c[2]}) == 2
    assert a[2] == b[2] == d[2]


def test_an_input_that_travels_is_drawn_and_so_is_a_bound_that_is_near() -> None:
    root = drawn(part("a", "cloud", way=0.5), bound_s=2.0)
    assert len(of_class(root, "transfer")) == 1
    assert "latency ≤ 2.00 s" in texts(root)
    assert not of_class(drawn(part("a", "cloud"), bound_s=100.0), "slo")


def test_what_an_operator_does_is_said_of_its_bar() -> None:
    (bar,) = of_class(drawn(part("a", "edge")), "operator")
    assert bar.findtext(f"{SVG}title") == "a on 0.5 of edge: 1.00 s, $0.1000/h, size=2"
