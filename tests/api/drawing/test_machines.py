"""The schedule on its machines, and tiers with their links: what is drawn, and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

import pytest

from circinus.api.drawing.links import links_svg
from circinus.api.drawing.machines import MOST_DRAWN, machines_svg, swatch_svg
from circinus.api.schemas.schedule import AssignmentView, MachineShare, ScheduleView
from circinus.api.schemas.service import InfrastructureView, LinkView, MachineTypeView, TierView
from tests.api.drawing.views import HOSTILE, SVG, of_class, parsed, texts


def tier(name: str = "edge", machines: int = 1, **more: object) -> TierView:
    figures: dict[str, object] = {
        "price_usd_per_hour": 0.1,
        "speed_factor": 1.0,
        "dedicated": False,
        "emulated": False,
        "call_s": 0.0,
    }
    return TierView.model_validate({"name": name, "machines": machines, **figures, **more})


def infrastructure(*tiers: TierView, links: Sequence[LinkView] = ()) -> InfrastructureView:
    return InfrastructureView(name="lab", origin=tiers[0].name, tiers=[*tiers], links=[*links])


def at(machine: int, share: float, tier: str = "edge", kind: str | None = None) -> MachineShare:
    return MachineShare(tier=tier, machine=machine, share=share, machine_type=kind)


def served(
    query: str, *machines: MachineShare, extras: Sequence[MachineShare] = ()
) -> AssignmentView:
    return AssignmentView(
        query_id=query, plan_id=f"p-{query}", machines=[*machines], extras=[*extras]
    )


def drawn(
    assignments: Sequence[AssignmentView],
    *tiers: TierView,
    width: int = 1080,
    link: str | None = None,
) -> Element:
    schedule = ScheduleView(assignments=[*assignments], waiting=[], tiers=[])
    return parsed(machines_svg(schedule, infrastructure(*tiers), width, link))


def told(each: Element) -> str:
    return each.findtext(f"{SVG}title") or ""


def box(each: Element) -> tuple[float, float, float, float]:
    rect = each if each.tag == f"{SVG}rect" else each.find(f"{SVG}rect")
    assert rect is not None
    x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, width, height


def test_names_of_others_stay_words() -> None:
    root = drawn([served(HOSTILE, at(0, 1.0, HOSTILE))], tier(HOSTILE), link="/ui/queries/")
    (slice_,) = of_class(root, "slice")
    assert HOSTILE in told(slice_)
    assert "<" not in slice_.get("href", "")


def test_without_tiers_or_queries_there_is_a_drawing() -> None:
    assert len(of_class(drawn([], tier(machines=3)), "machine")) == 3
    assert of_class(drawn([], tier(machines=0)), "machine") == []


def test_slices_fill_their_machine_from_the_bottom() -> None:
    root = drawn([served("a", at(1, 0.25)), served("b", at(1, 0.5))], tier(machines=2))
    empty, full = of_class(root, "machine")
    assert told(empty) == "edge 0: 0.00 in use, 1.00 free"
    assert told(full) == "edge 1: 0.75 in use, 0.25 free"
    a, b = map(box, of_class(root, "slice"))
    _, top, _, high = box(full)
    assert a[1] + a[3] == pytest.approx(top + high, abs=1.5)
    assert b[1] + b[3] == pytest.approx(a[1], abs=1.5)
    assert b[3] == pytest.approx(2 * a[3], abs=1.5)
    assert [told(each) for each in of_class(root, "slice")] == [
        "a, plan p-a: 0.25 of edge 1",
        "b, plan p-b: 0.5 of edge 1",
    ]
    assert "0.75 of 2 machines in use (38%), $0.1000/h each" in " ".join(texts(root))


def test_what_does_not_fit_does_not_leave_its_machine() -> None:
    root = drawn([served("a", at(0, 0.75)), served("b", at(0, 0.75))], tier())
    _, top, *_ = box(of_class(root, "machine")[0])
    assert all(box(each)[1] >= top - 0.6 for each in of_class(root, "slice"))


def test_machines_that_are_gone_are_shown_as_gone() -> None:
    root = drawn([served("a", at(4, 0.5))], tier(machines=1))
    assert [told(each) for each in of_class(root, "machine")] == [
        "edge 0: 0.00 in use, 1.00 free",
        "edge 4, gone: 0.50 in use, 0.50 free",
    ]


def test_extras_are_hatched_and_on_top_and_explained() -> None:
    root = drawn(
        [served("a", at(0, 0.25), extras=[at(0, 0.25)]), served("b", at(0, 0.25))], tier()
    )
    slices = of_class(root, "slice")
    (extra,) = of_class(root, "extra")
    assert slices[-1] is extra
    assert told(extra).endswith("extra replica")
    (pattern,) = root.iter(f"{SVG}pattern")
    hatched = [
        r for r in extra.iter(f"{SVG}rect") if r.get("fill") == f"url(#{pattern.get('id')})"
    ]
    assert len(hatched) == 1
    assert any("extra replica" in text for text in texts(root))
    assert not any("extra" in text for text in texts(drawn([served("a", at(0, 1.0))], tier())))


def test_of_a_dedicated_tier_the_machines_of_each_query_are_drawn() -> None:
    own = tier("device", 1, dedicated=True, emulated=True)
    root = drawn([served("a", at(0, 1.0, "device")), served("b", at(0, 0.5, "device"))], own)
    assert [told(each) for each in of_class(root, "machine")] == [
        "device of a: 1.00 in use, 0.00 free",
        "device of b: 0.50 in use, 0.50 free",
    ]
    words = " ".join(texts(root))
    assert "1 machine of its own for every query; 2 queries use theirs, speed emulated" in words


def test_each_type_of_a_tier_is_a_pool() -> None:
    kinds = [
        MachineTypeView(name=name, machines=2, price_usd_per_hour=price, speed_factor=1.0)
        for name, price in (("small", 0.1), ("large", 0.4))
    ]
    root = drawn([served("a", at(2, 0.5, kind="large"))], tier(machines=4, types=kinds))
    assert [told(each).partition(":")[0] for each in of_class(root, "machine")] == [
        "edge/small 0",
        "edge/small 1",
        "edge/large 2",
        "edge/large 3",
    ]
    assert told(of_class(root, "machine")[2]).endswith("0.50 in use, 0.50 free")


@pytest.mark.parametrize(("machines", "width"), [(1, 360), (30, 360), (300, 1080), (300, 360)])
def test_machines_wrap_and_stay_apart(machines: int, width: int) -> None:
    root = drawn([], tier(machines=machines), width=width)
    boxes = [box(each) for each in of_class(root, "machine")]
    assert len({(x, y) for x, y, *_ in boxes}) == machines
    assert all(x >= 0 and x + wide <= width for x, _, wide, _ in boxes)
    assert max(y + high for _, y, _, high in boxes) <= float(root.get("height", ""))


def test_of_very_many_machines_those_in_use_are_drawn_and_the_others_counted() -> None:
    last = 99_999
    root = drawn([served("a", at(last, 1.0))], tier(machines=last + 1))
    machines = of_class(root, "machine")
    assert len(machines) == MOST_DRAWN
    assert told(machines[-1]) == f"edge {last}: 1.00 in use, 0.00 free"
    assert f"{last + 1 - MOST_DRAWN} more are not drawn" in " ".join(texts(root))


def test_a_query_is_one_stop_of_the_keyboard() -> None:
    root = drawn([served("a/b", at(0, 1.0), at(1, 1.0))], tier(machines=2), link="/ui/queries/")
    first, second = of_class(root, "slice")
    assert {each.get("href") for each in (first, second)} == {"/ui/queries/a%2Fb"}
    assert (first.get("tabindex"), second.get("tabindex")) == (None, "-1")


def test_a_query_has_its_number_and_colour_in_the_table_too() -> None:
    root = drawn([served("a", at(0, 0.5)), served("b", at(0, 0.5))], tier())
    assert any(text.startswith("2 b") for text in texts(root))
    assert 'class="tier tier-2"' in swatch_svg(2)


def link(one: str, other: str, *, emulated: bool = False) -> LinkView:
    return LinkView(
        between=(one, other), bandwidth_bytes_per_s=6.25e6, delay_s=0.002, emulated=emulated
    )


def test_links_lie_between_their_tiers_and_say_what_they_carry() -> None:
    tiers = [tier("device", dedicated=True), tier(HOSTILE, 2), tier("cloud")]
    links = [link("device", HOSTILE, emulated=True), link("cloud", "device")]
    root = parsed(links_svg(infrastructure(*tiers, links=links)))
    near, far = of_class(root, "link")
    assert near.get("stroke-dasharray")
    assert not far.get("stroke-dasharray")
    assert texts(root).count("50 Mbit/s, 2.00 ms") == 2
    assert "one for each query; the origin" in texts(root)
    assert "no links" in (parsed(links_svg(infrastructure(tier()))).findtext(f"{SVG}desc") or "")
