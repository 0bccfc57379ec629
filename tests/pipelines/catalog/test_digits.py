from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from circinus import pipelines
from circinus.pipelines.catalog.digits import (
    FULL_GRID,
    NIGHT_SEED,
    SMALL_GRID,
    fine_pipeline,
    half_light,
    nightfall,
    pipeline,
    small_pipeline,
    three_quarter_light,
)
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import KnobValue, Scaling, Settings
from circinus.pipelines.model.payload import Payload, decode, encode

Knobs = Mapping[str, Settings]

BEST: Knobs = {
    "sampler": {"stride": 1, "scale": 1.0},
    "denoiser": {"kind": "median3"},
    "locator": {"method": "match"},
    "features": {"kind": "hog"},
    "classifier": {"model": "svm"},
    "voter": {"rule": "logprob"},
}
WORST: Knobs = {
    "sampler": {"stride": 12, "scale": 0.5},
    "denoiser": {"kind": "gauss"},
    "locator": {"method": "fixed"},
    "features": {"kind": "raw"},
    "classifier": {"model": "tree"},
    "voter": {"rule": "logprob"},
}


def run(digits: Pipeline, clip: Payload, knobs: Knobs) -> Payload:
    value = clip
    for name, operator in digits.by_name.items():
        value = operator.run(value, knobs[name])
    return value


def mean_score(knobs: Knobs) -> float:
    digits = pipeline()
    assert digits.examples is not None
    examples = digits.examples(40, 21).examples
    scores = [digits.score_of(run(digits, e.input, knobs), e.expected) for e in examples]
    return float(np.mean(scores))


@pytest.mark.parametrize("reading", [407, "40", "4071", "4o7", None])
def test_a_reading_that_is_not_three_digits_is_refused(reading: Payload) -> None:
    with pytest.raises(OperatorFailed, match=r"output must be a text of 3 digits, got"):
        pipeline().score_of(reading, "407")


def test_a_voter_rule_that_does_not_exist_is_refused() -> None:
    voter = pipeline().by_name["voter"]
    with pytest.raises(InvalidInput, match=r"rule must be one of logprob, got 'majority'\."):
        voter.run(np.zeros((1, 3, 10), np.float32), {"rule": "majority"})


def test_the_full_grid_has_2016_configurations() -> None:
    assert np.prod([len(slot.knob.values) for slot in pipeline().graph.slots]) == 2016


def test_the_fine_grid_has_432_configurations_of_the_same_operators() -> None:
    fine = fine_pipeline()
    assert np.prod([len(slot.knob.values) for slot in fine.graph.slots]) == 432
    names = [spec.name for spec in pipeline().graph.operators]
    assert [spec.name for spec in fine.graph.operators] == names


def test_the_small_grid_has_72_configurations_that_the_full_grid_has_too() -> None:
    assert np.prod([len(slot.knob.values) for slot in small_pipeline().graph.slots]) == 72
    for operator, knobs in SMALL_GRID.items():
        for knob, values in knobs.items():
            assert set(values) <= set(FULL_GRID[operator][knob])


@pytest.mark.parametrize(("dimmed", "light"), [(half_light, 0.5), (three_quarter_light, 0.75)])
def test_in_less_light_the_pipeline_is_the_same_and_its_examples_are_darker(
    dimmed: Callable[[], Pipeline], light: float
) -> None:
    usual, dim = pipeline(), dimmed()
    assert dim.graph == usual.graph
    assert usual.examples is not None
    assert dim.examples is not None
    bright, dark = usual.examples(2, 5), dim.examples(2, 5)
    assert bright.name == "digits clips, seed 5"
    assert dark.name == f"digits clips, seed 5, light {light}"
    assert [e.expected for e in dark.examples] == [e.expected for e in bright.examples]
    shown, usual_shown = dark.examples[1].input, bright.examples[1].input
    assert isinstance(shown, np.ndarray)
    assert isinstance(usual_shown, np.ndarray)
    assert shown.mean() < usual_shown.mean()


def test_night_falls_with_a_seed() -> None:
    dusk = nightfall()
    assert dusk.name == "digits_nightfall"
    assert dusk.examples is not None
    day, night = (dusk.examples(2, seed) for seed in (NIGHT_SEED - 1, NIGHT_SEED))
    brightness = [
        [float(np.mean(example.input)) for example in each.examples]  # type: ignore[arg-type]
        for each in (day, night)
    ]
    assert max(brightness[1]) < min(brightness[0])


def test_the_operators_are_a_chain_and_proportional() -> None:
    specs = pipeline().graph.operators
    names = [spec.name for spec in specs]
    assert names == ["sampler", "denoiser", "locator", "features", "classifier", "voter"]
    assert [spec.after for spec in specs] == [(), *((name,) for name in names[:-1])]
    assert {spec.scaling for spec in specs} == {Scaling.PROPORTIONAL}


def test_stride_and_scale_are_ordered_and_names_are_not() -> None:
    ordered = {slot.key: slot.knob.ordered for slot in pipeline().graph.slots}
    assert [key for key, value in ordered.items() if value] == ["sampler.stride", "sampler.scale"]


def test_the_classifier_has_a_version_that_follows_its_models() -> None:
    assert pipeline().by_name["classifier"].version != pipeline().by_name["voter"].version


@pytest.mark.parametrize(("reading", "score"), [("407", 1.0), ("417", 2 / 3), ("740", 0.0)])
def test_the_score_is_the_share_of_digits_in_their_place(reading: str, score: float) -> None:
    assert pipeline().score_of(reading, "407") == pytest.approx(score)


def test_every_hand_over_survives_the_wire() -> None:
    digits = pipeline()
    assert digits.examples is not None
    value = digits.examples(1, 3).examples[0].input
    for name, operator in digits.by_name.items():
        there = operator.run(decode(encode(value)), BEST[name])
        value = operator.run(value, BEST[name])
        np.testing.assert_array_equal(there, value)


def test_operators_leave_what_they_are_given_as_it_was() -> None:
    digits = pipeline()
    assert digits.examples is not None
    for knobs in (BEST, WORST):
        value = digits.examples(1, 3).examples[0].input
        for name, operator in digits.by_name.items():
            before = encode(value)
            output = operator.run(value, knobs[name])
            assert encode(value) == before
            value = output


def test_the_best_knobs_read_far_more_digits_than_the_worst() -> None:
    # 120 digits each, so a standard error of about .04 for either.
    assert mean_score(BEST) > mean_score(WORST) + 0.3


def test_blurring_helps_full_frames_more_than_half_frames() -> None:
    def gain(scale: float) -> float:
        sampler = {"stride": 4, "scale": scale}
        knobs = {**BEST, "sampler": sampler, "features": {"kind": "raw"}}
        blurred = mean_score({**knobs, "denoiser": {"kind": "gauss"}})
        return blurred - mean_score({**knobs, "denoiser": {"kind": "none"}})

    assert gain(1.0) > gain(0.5)


def test_importing_the_pipeline_loads_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys; from circinus.pipelines.catalog.digits import pipeline; pipeline(); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'sklearn')))"
    )
    root = Path(pipelines.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.slow
def test_every_small_configuration_reads_three_digits() -> None:
    digits = small_pipeline()
    assert digits.examples is not None
    clip = digits.examples(1, 5).examples[0].input
    slots = digits.graph.slots
    for values in product(*(slot.knob.values for slot in slots)):
        knobs: dict[str, dict[str, KnobValue]] = {name: {} for name in digits.by_name}
        for slot, value in zip(slots, values, strict=True):
            knobs[slot.operator][slot.knob.name] = value
        reading = run(digits, clip, knobs)
        assert isinstance(reading, str)
        assert reading.isdecimal()
        assert len(reading) == 3
