from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work, busy_seconds
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, MachineType, Tier

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
