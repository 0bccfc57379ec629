"""A tier with types promises what holds on every machine that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, MachineType, Tier

SMALL = {"name": "small", "machines": 3, "price_usd_per_hour": 0.4, "speed_factor": 0.5}
LARGE = {"name": "large", "machines": 2, "price_usd_per_hour": 1.2, "speed_factor": 2.0}
SPEED = {"factor": 2.0, "low": 1.0, "high": 3.0, "repetitions": 9}
MEASURED = {"date": "2026-01-01", "share": 0.5, "tier_factor": 0.5, "speeds": {"p.a": SPEED}}
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
            document(SMALL | {"calibration": MEASURED | {"speeds": {"p.a": SPEED | {"x": 1}}}}),
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
    small = SMALL | {"calibration": MEASURED | {"speeds": {"p.a": SPEED | {"factor": 3.0}}}}
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
