"""Operators of `transcribe`: those of networks where their weights are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.catalog.speech.sound import RATE, Sound
from circinus.pipelines.catalog.transcribe import pipeline, pipeline_with
from circinus.pipelines.catalog.transcribe.cleaning import DENOISERS, denoised, trimmed
from circinus.pipelines.catalog.transcribe.networks import DTLN, GTCRN
from circinus.pipelines.catalog.transcribe.recognising import RECOGNISERS, recognised
from circinus.pipelines.catalog.transcribe.recordings import normal
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.weights import FOLDER
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload

with_weights = pytest.mark.skipif(
    bool(pipeline().available()), reason="CIRCINUS_MODELS has no weights, or an extra is missing"
)


def loud_between(begin: int, end: int, *, length: int = RATE) -> Sound:
    samples = np.full(length, 10, np.int16)
    samples[begin:end] = 5000
    return Sound(rate=RATE, samples=samples)


def test_weights_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    lacking = ", ".join(map(str, pipeline().available()))
    for name in ("whisper-tiny.en", "whisper-base", "moonshine-base", "gtcrn", "dtln"):
        assert f"weights {name}" in lacking
    sound = Sound(rate=RATE, samples=np.zeros(RATE, np.int16))
    with pytest.raises(InvalidInput, match="weights must be there: weights gtcrn"):
        denoised(sound, kind="gtcrn")
    with pytest.raises(InvalidInput, match="weights must be there: weights moonshine-base"):
        recognised(sound, model="moonshine", precision="int8", beam=1, threads=1)


def test_a_recogniser_of_the_user_that_is_not_there_fails_with_its_name() -> None:
    pytest.importorskip("faster_whisper")
    mine = pipeline_with("/nowhere/whisper")
    (recogniser,) = (each for each in mine.operators if each.name == "recogniser")
    sound: Payload = {"rate": RATE, "samples": np.zeros(RATE, np.int16)}
    settings: Settings = {
        "model": "/nowhere/whisper",
        "precision": "int8",
        "beam": 1,
        "threads": 1,
    }
    with pytest.raises(Exception, match="nowhere/whisper"):
        recogniser.run(sound, settings)


def test_a_score_needs_words_to_compare_with() -> None:
    pytest.importorskip("jiwer")
    with pytest.raises(OperatorFailed, match=r"expected must have a word, got '\.\.\.'"):
        pipeline().score_of("word", "...")


def test_there_are_over_five_hundred_configurations() -> None:
    assert ConfigurationSpace(pipeline().graph).size == 576


def test_words_are_compared_without_case_marks_and_figures() -> None:
    assert normal("Press 1, please... It\u2019s O'Brien!") == "press one please it's o'brien"


def test_what_is_quiet_before_and_after_is_cut_with_a_margin() -> None:
    whole = loud_between(RATE // 2, RATE * 3 // 5)
    cut = trimmed(whole, kind="energy")
    assert 1600 < len(cut.samples) < RATE // 2
    assert int(cut.samples.max()) == 5000
    assert trimmed(whole, kind="none") is whole


def test_sound_that_is_alike_throughout_is_left_whole() -> None:
    whole = Sound(rate=RATE, samples=np.full(RATE, 10, np.int16))
    assert trimmed(whole, kind="energy") is whole


@with_weights
@pytest.mark.parametrize("kind", DENOISERS)
def test_a_denoiser_makes_noise_quieter_and_leaves_a_voice(kind: str) -> None:
    (example,) = _examples(1)
    rng = np.random.default_rng(0)
    hiss = Sound(rate=RATE, samples=(1000 * rng.standard_normal(RATE)).astype(np.int16))
    quieter = denoised(hiss, kind=kind)
    assert (quieter.rate, len(quieter.samples)) == (RATE, RATE)
    factor = 1.01 if kind == "none" else 0.6
    assert _loudness(quieter) < factor * _loudness(hiss)
    voice = Sound(rate=RATE, samples=example.input)
    assert _loudness(denoised(voice, kind=kind)) > 0.2 * _loudness(voice)


@with_weights
@pytest.mark.parametrize("model", RECOGNISERS)
def test_a_clear_sentence_is_recognised_twice_alike_and_its_network_is_loaded_once(
    model: str,
) -> None:
    example = next(e for e in _examples(6) if len(e.expected.split()) < 8)
    sound = Sound(rate=RATE, samples=example.input)
    words = [recognised(sound, model=model, precision="int8", beam=1, threads=1) for _ in range(2)]
    held = MODELS.held
    assert words[0] == words[1]
    assert pipeline().score_of(words[0], example.expected) > 0.3
    recognised(sound, model=model, precision="int8", beam=1, threads=1)
    assert len(MODELS.held) == len(held)


@with_weights
def test_weights_are_those_that_the_hashes_name() -> None:
    GTCRN.prepare()
    DTLN.prepare()


def _examples(count: int) -> list:  # type: ignore[type-arg]  # of inputs of one kind
    made = pipeline().examples
    assert made is not None
    return list(made(count, 2).examples)


def _loudness(sound: Sound) -> float:
    return float(np.sqrt(np.mean(sound.samples.astype(np.float64) ** 2)))
