from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.io.instance_types import known_types, parse_catalogue
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work, busy_seconds
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, MachineType, Tier

HEAD = "{date: 2025-01-31, provider: us, source: contract, types: "
GOOD = "{name: a.b, price_usd_per_hour: 1}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "prices must hold a mapping"),
        ("{typs: []}", "prices must have only the fields date, provider, source, types"),
        ("{types: []}", "types must be a list with an entry at least"),
        (HEAD + "[5]}", r"types\[0\] must be a mapping, got 5"),
        (HEAD + "[{name: a}]}", r"types\[0\].price_usd_per_hour must be given"),
        (f"{{types: [{GOOD}]}}", r"types\[0\].date must be given"),
        (HEAD + "[{name: a, cost: 1}]}", r"types\[0\] must have only the fields name, price_usd"),
        (HEAD + "[{name: a, price_usd_per_hour: x}]}", "price_usd_per_hour must be a number"),
        (HEAD + "[{name: a, price_usd_per_hour: true}]}", "price_usd_per_hour must be a number"),
        (HEAD + "[{name: a, price_usd_per_hour: -1}]}", r"types\[0\].price_usd_per_hour must be"),
        (HEAD + "[{name: a, price_usd_per_hour: .nan}]}", "price_usd_per_hour must be from 0"),
        (HEAD + "[{name: 5, price_usd_per_hour: 1}]}", r"types\[0\].name must be text, got 5"),
        (HEAD + "[{name: a b, price_usd_per_hour: 1}]}", "name must start with a letter"),
        (HEAD + "[{name: a, price_usd_per_hour: 1, memory_gb: 0}]}", "memory_gb must be finite"),
        (HEAD + "[{name: a, price_usd_per_hour: 1, date: soon}]}", "date must be a date, as"),
        (HEAD + "[{name: a, price_usd_per_hour: 1, accelerator: 2}]}", "accelerator must be text"),
        (HEAD + f"[{GOOD}, {GOOD}]}}", "name of a type must not repeat, got 'a.b'"),
    ],
)
def test_catalogues_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_catalogue(text.encode())


def test_what_holds_for_all_may_be_said_once_and_a_type_may_differ() -> None:
    entry = "{name: c, price_usd_per_hour: 0, date: 2024-06-30, accelerator: T4, memory_gb: 16}"
    read = parse_catalogue((HEAD + f"[{GOOD}, {entry}]}}").encode())
    assert [*read] == ["a.b", "c"]
    assert (read["a.b"].date, read["a.b"].source) == ("2025-01-31", "contract")
    assert (read["c"].date, read["c"].accelerator, read["c"].memory_gb) == ("2024-06-30", "T4", 16)


def test_the_built_in_catalogue_has_a_price_a_date_and_a_source_for_each() -> None:
    assert len(known_types()) >= 10
    assert all(each.price_usd_per_hour > 0 and each.source for each in known_types().values())


SPEED = ClassSpeed(factor=2.0, low=1.5, high=3.0, repetitions=3)
FOUND = Calibration(
    date="2026-11-21", share=0.5, tier_factor=1.0, speeds={"p.a": SPEED}, within=1.25
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 0.0}, "speed.low must be finite and > 0, got 0.0."),
        ({"low": 2.5}, "speed must have low <= factor <= high"),
        ({"high": 1.9}, "speed must have low <= factor <= high"),
        ({"repetitions": 0}, "speed.repetitions must be >= 1, got 0."),
    ],
)
def test_a_speed_that_cannot_be_is_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(SPEED, **change)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": "yesterday"}, "calibration.date must be YYYY-MM-DD, got 'yesterday'."),
        ({"share": 0.0}, "calibration.share must be"),
        ({"within": 0.9}, "calibration.within must be >= 1, got 0.9."),
        ({"tier_factor": 0.0}, "calibration.tier_factor must be finite and > 0, got 0.0."),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(FOUND, **change)  # type: ignore[arg-type]  # wrong on purpose


def test_a_class_that_was_not_measured_is_as_fast_as_its_tier() -> None:
    tier = Tier(name="t", speed_factor=0.25, calibration=replace(FOUND, tier_factor=0.25))
    assert tier.speed_of("p.a") == 2.0
    assert tier.speed_of("p.b") == 0.25
    assert Tier(name="t", speed_factor=0.25).speed_of("p.a") == 0.25


def test_a_tier_that_is_set_to_be_faster_is_so_for_every_class() -> None:
    tier = Tier(name="t", calibration=FOUND)
    assert replace(tier, speed_factor=3.0).speed_of("p.a") == 6.0


def test_operators_take_the_factor_of_their_class_and_calls_that_of_the_tier() -> None:
    specs = (
        OperatorSpec(name="a"),
        OperatorSpec(name="b", after=("a",)),
        OperatorSpec(name="c", after=("b",), operator_class="p.a"),
    )
    graph = PipelineGraph(name="p", operators=specs)
    assert graph.classes == ("p.a", "p.b", "p.a")
    tier = Tier(name="t", call_s=0.5, calibration=FOUND)
    work = Work(
        operator_s=np.full((3, 1), 1.0), output_bytes=np.zeros((3, 1)), input_bytes=np.zeros(1)
    )
    places = np.zeros((1, 3), dtype=np.int64)
    infrastructure = Infrastructure(name="i", tiers=(tier,))
    busy = busy_seconds(graph, infrastructure, work, places, np.full((1, 3), 0.5))
    # 1 s at half a machine is 2 s; the first operator is called, 0.5 s at half a machine.
    assert busy[0, :, 0].tolist() == [2.0, 2.0, 1.0]


def test_a_calibration_survives_the_way_to_a_document_and_back() -> None:
    infrastructure = Infrastructure(name="i", tiers=(Tier(name="t", calibration=FOUND),))
    assert infrastructure_from_dict(infrastructure_to_dict(infrastructure)) == infrastructure


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (3, "tiers[0].calibration must be a mapping, got 3."),
        ({"date": "2026-11-21"}, "tiers[0].calibration.speeds must be given"),
        (
            {"date": "2026-11-21", "share": 0.5, "tier_factor": 1.0, "speeds": {"a": {"low": 1}}},
            "tiers[0].calibration.speeds.a.factor must be given",
        ),
        (
            {"date": "now", "share": 0.5, "tier_factor": 1.0, "speeds": {}},
            "calibration.date must be YYYY-MM-DD",
        ),
    ],
)
def test_a_document_with_a_calibration_that_cannot_be_is_refused(
    calibration: object, message: str
) -> None:
    document = {"name": "i", "tiers": [{"name": "t", "calibration": calibration}]}
    with pytest.raises(InvalidInput, match=re.escape(message)):
        infrastructure_from_dict(document)


def test_classes_that_were_measured_before_are_as_fast_as_the_tier_is_set_to_be_now() -> None:
    tier = Tier(name="t", speed_factor=0.5, calibration=FOUND)  # measured at 1, set to half of it
    other = replace(FOUND, tier_factor=0.25, speeds={"p.b": SPEED})
    found = tier.calibrated(other)
    assert found.speed_factor == 0.25
    assert found.speed_of("p.a") == tier.speed_of("p.a") == 1.0
    assert found.speed_of("p.b") == 2.0


def test_of_several_pipelines_the_worst_predicted_tells_how_far_off_requests_are() -> None:
    tier = Tier(name="t", calibration=replace(FOUND, within=1.5))
    other = replace(FOUND, speeds={"p.b": SPEED}, within=1.2)
    assert tier.calibrated(other).off_by == 1.5
    assert tier.calibrated(replace(other, within=1.6)).off_by == 1.6
    assert tier.calibrated(replace(FOUND, within=1.1)).off_by == 1.1  # of the same, measured anew
    types = tuple(
        MachineType(name=name, calibration=replace(FOUND, within=within))
        for name, within in (("old", 1.3), ("new", 1.1))
    )
    assert Tier(name="t", types=types).off_by == 1.3
    assert Tier(name="t").off_by == 1.0


def test_a_tier_says_how_far_off_requests_are_until_it_is_calibrated() -> None:
    tier = Tier(name="t", within=1.4)
    assert tier.off_by == 1.4
    assert tier.calibrated(replace(FOUND, within=1.1)).off_by == 1.1
    measured = MachineType(name="new", calibration=replace(FOUND, within=1.1))
    assert replace(tier, types=(measured, MachineType(name="old"))).off_by == 1.4


def test_what_was_measured_of_a_tier_tells_of_one_that_waits_longer() -> None:
    assert FOUND.at(0.5).tier_factor == 0.5
    assert FOUND.at(0.5).speeds["p.a"] == ClassSpeed(factor=1.0, low=0.75, high=1.5, repetitions=3)


SMALL = {"name": "small", "machines": 3, "price_usd_per_hour": 0.4, "speed_factor": 0.5}
LARGE = {"name": "large", "machines": 2, "price_usd_per_hour": 1.2, "speed_factor": 2.0}
TIERS_SPEED = {"factor": 2.0, "low": 1.0, "high": 3.0, "repetitions": 9}
MEASURED = {"date": "2026-01-01", "share": 0.5, "tier_factor": 0.5, "speeds": {"p.a": TIERS_SPEED}}
CLASSES = ("p.a", "p.b", "p.c")


def document(*types: Mapping[str, object], **others: object) -> dict[str, object]:
    return {"name": "x", "tiers": [{"name": "farm", "types": list(types), **others}]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (document(SMALL, machines=1), r"tiers\[0\]\.machines must be left out: .* got 1\."),
        (document(SMALL, speed_factor=0.5), r"speed_factor must be left out: the types say it"),
        (document(SMALL, calibration=MEASURED), r"calibration must be left out"),
        (document(SMALL, dedicated=True), r"tier farm\.types must be left out: .*\['small'\]"),
        (document(SMALL, SMALL), r"tier farm\.types must not repeat, got 'small'"),
        (document({"machines": 1}), r"tiers\[0\]\.types\[0\]\.name must be given"),
        (document({"name": "a b"}), r"type\.name must start with a letter .*'a b'"),
        (document(SMALL | {"machines": -1}), r"type small\.machines must be >= 0, got -1"),
        (document(SMALL | {"machines": 1.5}), r"types\[0\]\.machines must be a whole number"),
        (document(SMALL | {"price_usd_per_hour": -1}), r"price_usd_per_hour must .* got -1"),
        (document(SMALL | {"speed_factor": 0}), r"type small\.speed_factor must .* > 0, got 0"),
        (document(SMALL | {"dedicated": True}), r"must have only the fields name, machines, .*'d"),
        (
            document(SMALL | {"calibration": MEASURED | {"gpu": 1}}),
            r"types\[0\]\.calibration must have only the fields date, .* got 'gpu'",
        ),
        (
            document(
                SMALL | {"calibration": MEASURED | {"speeds": {"p.a": TIERS_SPEED | {"x": 1}}}}
            ),
            r"speeds\.p\.a must have only the fields factor, .* got 'x'",
        ),
    ],
)
def test_types_that_cannot_be_are_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        infrastructure_from_dict(given)


def test_what_follows_from_the_types_cannot_be_said_against_them() -> None:
    tier = Tier(name="farm", types=(MachineType(name="a", machines=2),))
    with pytest.raises(InvalidInput, match=r"tier farm\.machines must be left out: .* got 3"):
        replace(tier, machines=3)
    assert replace(tier, call_s=0.1).machines == 2


def test_a_type_that_a_tier_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"tier farm\.types must be among a, got 'b'"):
        Tier(name="farm", types=(MachineType(name="a"),)).as_type("b")


def test_machines_of_no_type_have_none() -> None:
    (farm,) = infrastructure_from_dict(document(LARGE, SMALL)).tiers
    assert (farm.type_of(-1), farm.type_of(5)) == (None, None)
    assert Tier(name="alike", machines=2).type_of(0) is None


def test_a_tier_is_as_slow_and_as_dear_as_any_of_its_types_and_cheap_machines_come_first() -> None:
    (farm,) = infrastructure_from_dict(document(LARGE, SMALL)).tiers
    assert (farm.machines, farm.speed_factor, farm.price_usd_per_hour) == (5, 0.5, 1.2)
    found = [farm.type_of(machine) for machine in range(farm.machines)]
    assert [each.name for each in found if each] == ["small"] * 3 + ["large"] * 2


def test_the_slowest_type_of_a_class_need_not_be_the_slowest_of_another() -> None:
    small = SMALL | {"calibration": MEASURED | {"speeds": {"p.a": TIERS_SPEED | {"factor": 3.0}}}}
    (farm,) = infrastructure_from_dict(document(LARGE, small)).tiers
    assert farm.speed_of("p.a") == 2.0  # small: 3, large: 2
    assert farm.speed_of("p.b") == 0.5  # small: 0.5, large: 2


def test_a_tier_as_one_type_sees_it_has_no_types() -> None:
    (farm,) = infrastructure_from_dict(document(LARGE, SMALL, emulated=True)).tiers
    large = Tier(name="farm", machines=2, price_usd_per_hour=1.2, speed_factor=2.0, emulated=True)
    assert farm.as_type("large") == farm.typed("large") == farm.pools["farm/large"] == large
    assert farm.typed(None) is farm


def test_a_change_reaches_every_type_or_the_tier_itself() -> None:
    (farm,) = infrastructure_from_dict(document(LARGE, SMALL)).tiers

    def doubled(name: str, pool: Tier) -> Tier:
        assert name in {"farm/small", "farm/large", "alike"}
        return replace(pool, speed_factor=2 * pool.speed_factor, machines=7)

    twice = farm.changed(doubled)
    assert [each.speed_factor for each in twice.types] == [1.0, 4.0]
    assert (twice.speed_factor, twice.machines) == (1.0, 14)
    assert Tier(name="alike").changed(doubled).machines == 7


SPEEDS = st.floats(0.01, 100.0)


@st.composite
def machine_types(draw: st.DrawFn) -> MachineType:
    classes = draw(st.sets(st.sampled_from(CLASSES)))
    found = {name: draw(SPEEDS) for name in classes}
    measured = Calibration(
        date="2026-01-01",
        share=0.5,
        tier_factor=draw(SPEEDS),
        speeds={n: ClassSpeed(factor=v, low=v, high=v, repetitions=1) for n, v in found.items()},
    )
    return MachineType(
        name=draw(st.text("abc", min_size=1, max_size=3)),
        machines=draw(st.integers(0, 4)),
        price_usd_per_hour=draw(st.sampled_from([0.0, 0.5, 1.0, 2.5])),
        speed_factor=draw(SPEEDS),
        calibration=draw(st.sampled_from([None, measured])),
    )


@given(st.lists(machine_types(), min_size=1, max_size=4, unique_by=lambda each: each.name))
def test_no_type_is_slower_or_dearer_than_promised_and_each_machine_has_one(
    types: list[MachineType],
) -> None:
    tier = Tier(name="farm", types=tuple(types))
    for each in types:
        assert tier.price_usd_per_hour >= each.price_usd_per_hour
        assert tier.speed_factor <= each.speed_factor
        assert all(tier.speed_of(name) <= each.speed_of(name) for name in CLASSES)
    found = [tier.type_of(machine) for machine in range(tier.machines)]
    assert {each.name: found.count(each) for each in types} == {
        each.name: each.machines for each in types
    }
    prices = [each.price_usd_per_hour for each in found if each]
    assert prices == sorted(prices)
    whole = Infrastructure(name="x", tiers=(tier,))
    assert infrastructure_from_dict(infrastructure_to_dict(whole)) == whole
