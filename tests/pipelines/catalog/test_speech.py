from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.catalog.speech import pipeline
from circinus.pipelines.catalog.speech.sentences import (
    COMMANDS,
    FREE,
    commands,
    grammar,
    spoken,
    vocabulary,
    written,
)
from circinus.pipelines.catalog.speech.sound import (
    FLOOR,
    MODELS,
    RATE,
    FloatArray,
    Sound,
    as_samples,
    checked_recording,
    corrected,
    decoded,
    denoised,
    resampled,
)
from circinus.pipelines.catalog.speech.utterances import (
    NOISES,
    draw_utterance,
    noise,
    recording_features,
)
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload

pytestmark = pytest.mark.skipif(
    bool(pipeline().available()), reason="the extra speech or the program flite is missing"
)

SECOND = np.zeros(RATE, np.int16)
"""Silence."""


def generator(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def examples(count: int, seed: int) -> Dataset:
    make = pipeline().examples
    assert make is not None
    return make(count, seed)


def tone(hertz: float, *, seconds: float = 1.0, rate: int = RATE) -> FloatArray:
    return 8000 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)


def loudness(sound: Sound, *, begin: float = 0.0, end: float = 1.0) -> float:
    """Root mean square between two seconds."""
    part = sound.samples[int(begin * sound.rate) : int(end * sound.rate)].astype(np.float64)
    return float(np.sqrt(np.mean(part**2)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "recording must be an int16 array of one axis, got 'NoneType'"),
        (SECOND.astype(np.float32), "must be an int16 array of one axis, got 'float32 array"),
        (SECOND.reshape(2, -1), r"must be an int16 array of one axis, got .*\(2, 8000\)"),
        (SECOND[:3999], r"must last 0.25 to 30 s \(4000 to 480000 samples\), got .*\(3999,\)"),
        (np.zeros(480_001, np.int16), r"must last 0.25 to 30 s .* got .*\(480001,\)"),
    ],
)
def test_what_is_no_recording_is_refused(wrong: Payload, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["sampler"].run(wrong, {"rate": 8000})
    features = pipeline().features
    assert features is not None
    with pytest.raises(InvalidInput, match=message):
        features(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (SECOND, "sound must be a dict of rate and samples, got 'int16 array"),
        ({"rate": 8000}, "sound must be a dict of rate and samples, got 'dict'"),
        ({"rate": 44100, "samples": SECOND}, r"sound.rate must be one of .*, got '44100'"),
        ({"rate": 8000, "samples": SECOND[:1999]}, r"sound.samples must last .*\(2000 to 240000"),
        ({"rate": 8000, "samples": "hello"}, "sound.samples must be an int16 array"),
    ],
)
@pytest.mark.parametrize(
    ("operator", "knobs"),
    [("denoiser", {"kind": "none"}), ("decoder", {"lm": "grammar", "effort": "fast"})],
)
def test_what_is_no_sound_is_refused(
    operator: str, knobs: Settings, wrong: Payload, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name[operator].run(wrong, knobs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(7, "transcript must be a text, got"), ("a" * 4001, "must have at most 4000 characters")],
)
def test_what_is_no_transcript_is_refused(wrong: Payload, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["corrector"].run(wrong, {"kind": "none"})


def test_a_score_without_expected_words_is_refused() -> None:
    with pytest.raises(OperatorFailed, match="expected must have a word, got ' '"):
        pipeline().score_of("call mary", " ")


@pytest.mark.parametrize(
    ("operator", "inputs", "knobs", "message"),
    [
        ("sampler", SECOND, {"rate": 9000}, "rate must be one of"),
        (
            "denoiser",
            {"rate": RATE, "samples": SECOND},
            {"kind": "wiener"},
            "kind must be one of none,",
        ),
        (
            "decoder",
            {"rate": RATE, "samples": SECOND},
            {"lm": "bigram", "effort": "fast"},
            "lm must be one of grammar, trigram",
        ),
        (
            "decoder",
            {"rate": RATE, "samples": SECOND},
            {"lm": "grammar", "effort": "most"},
            "effort must be one of fast, mid, full",
        ),
        ("corrector", "call mary", {"kind": "spell"}, "kind must be one of none, snap"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(
    operator: str, inputs: Payload, knobs: Settings, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name[operator].run(inputs, knobs)


def test_there_are_108_configurations_in_a_chain() -> None:
    graph = pipeline().graph
    assert np.prod([len(slot.knob.values) for slot in graph.slots]) == 108
    names = ["sampler", "denoiser", "decoder", "corrector"]
    assert [spec.name for spec in graph.operators] == names
    assert [spec.after for spec in graph.operators] == [(), *((name,) for name in names[:-1])]
    assert [slot.key for slot in graph.slots if slot.knob.ordered] == ["sampler.rate"]


@pytest.mark.parametrize(
    ("heard", "score"),
    [
        ("turn on the light", 1.0),
        ("turn on a light", 3 / 4),  # one word of four is wrong
        ("turn light", 1 / 2),  # two are missing
        ("", 0.0),
        ("well turn on the light and lock the door too", 0.0),  # six too many: 1 - 6 / 4 < 0
    ],
)
def test_the_score_is_one_minus_the_word_error_rate(heard: str, score: float) -> None:
    assert pipeline().score_of(heard, "turn on the light") == pytest.approx(score)


def test_half_of_the_rate_keeps_a_low_tone_and_drops_a_high_one() -> None:
    low, high = tone(1000), tone(6000)
    both = resampled(Sound(rate=RATE, samples=as_samples(low + high)), 8000)
    assert both.rate == 8000
    assert len(both.samples) == 8000
    kept = slice(400, -400)  # the filter starts and ends softly
    wanted = tone(1000, rate=8000)[kept]
    assert np.abs(both.samples[kept] - wanted).max() < 0.02 * 8000


@pytest.mark.parametrize("kind", ["mask200", "gate1.5"])
def test_a_denoiser_takes_noise_away_and_leaves_a_tone(kind: str) -> None:
    # Hiss throughout; from .5 to .8 s a tone that starts at a sample that is 0.
    wave = 200 * generator().standard_normal(RATE)
    wave[RATE // 2 : RATE * 4 // 5] += tone(1000, seconds=0.3)
    before = Sound(rate=RATE, samples=as_samples(wave))
    after = denoised(before, kind=kind)
    assert after.rate == before.rate
    assert len(after.samples) == len(before.samples)
    assert loudness(after, begin=0.55, end=0.75) == pytest.approx(8000 / np.sqrt(2), rel=0.05)
    assert loudness(after, end=0.4) < 0.7 * loudness(before, end=0.4)
    assert loudness(after, end=0.4) > FLOOR * loudness(before, end=0.4)


def test_no_denoiser_touches_silence() -> None:
    for kind in ("none", "mask200", "gate1.5"):
        assert not denoised(Sound(rate=RATE, samples=SECOND), kind=kind).samples.any()


def test_steady_hum_is_all_noise_to_a_mask() -> None:
    # Every frame is as loud as the first ones: gains stay at the floor or near it.
    before = Sound(rate=RATE, samples=as_samples(tone(1000)))
    after = denoised(before, kind="mask200")
    inside = {"begin": 0.3, "end": 0.9}
    assert loudness(after, **inside) == pytest.approx(FLOOR * loudness(before, **inside), rel=0.1)


def test_a_transcript_near_a_command_becomes_it_and_another_stays() -> None:
    command = "turn on the lamp in the attic"
    assert corrected("turn on lamp in the attic", kind="snap") == command
    assert corrected("turn on lamp in the attic", kind="none") == "turn on lamp in the attic"
    assert corrected(command, kind="snap") == command
    assert corrected("why is it so cold", kind="snap") == "why is it so cold"
    assert corrected("", kind="snap") == ""


@pytest.mark.parametrize("lm", MODELS)
def test_decoders_hear_words_of_the_house_and_more_of_them_with_more_effort(lm: str) -> None:
    def mean_score(effort: str) -> float:
        scores = []
        for example in examples(6, 2).examples:
            assert isinstance(example.input, np.ndarray)
            recording = example.input.view(np.int16)
            heard = decoded(Sound(rate=RATE, samples=recording), lm=lm, effort=effort)
            assert set(heard.split()) <= set(vocabulary())
            scores.append(pipeline().score_of(heard, example.expected))
        return float(np.mean(scores))

    assert mean_score("mid") > mean_score("fast") + 0.1


@pytest.mark.parametrize("lm", MODELS)
def test_a_decoder_has_forgotten_what_it_heard_before(lm: str) -> None:
    # Gaussians of other recordings changed the words here, see `decoding`.
    sounds = []
    for example in examples(8, 0).examples:
        assert isinstance(example.input, np.ndarray)
        recording = Sound(rate=RATE, samples=example.input.view(np.int16))
        sounds.append(denoised(recording, kind="gate1.5"))
    heard = [decoded(sound, lm=lm, effort="fast") for sound in sounds]
    again = [decoded(sound, lm=lm, effort="fast") for sound in reversed(sounds)]
    assert again[::-1] == heard


def test_no_sentence_is_in_two_places() -> None:
    places = [
        written(),
        *(part_of(spoken(forms), seed) for forms in (COMMANDS, FREE) for seed in range(3)),
    ]
    counts = Counter(sentence for place in places for sentence in place)
    assert counts.most_common(1)[0][1] == 1
    assert set(commands()) < set(counts)
    assert min(map(len, places)) > 200


def test_the_model_is_made_of_all_words() -> None:
    assert {word for sentence in written() for word in sentence.split()} == set(vocabulary())
    assert "(call|text|remind) (mary" in grammar()


def test_two_thirds_of_examples_are_commands() -> None:
    # 2/3 of 15 is 10, with a standard deviation of 1.8; the seed is fixed.
    said = [example.expected for example in examples(15, 5).examples]
    assert 6 <= sum(words in commands() for words in said) <= 14


@pytest.mark.parametrize("kind", NOISES)
def test_noise_is_as_long_as_asked_and_has_no_mean(kind: str) -> None:
    wave = noise(kind, RATE, generator())
    assert wave.shape == (RATE,)
    assert abs(wave.mean()) < 0.1 * wave.std()


def test_features_tell_how_long_how_noisy_and_how_shrill() -> None:
    # 1.5 s: hiss of 100 throughout (40 dB), a voice of 5657 = 8000 / sqrt(2) (75 dB) in the last.
    hiss = 100 * generator().standard_normal(RATE * 3 // 2)
    hiss[RATE // 2 :] += tone(1000)
    seconds, quiet, above, changes = recording_features(as_samples(hiss))
    assert seconds == 1.5
    assert quiet == pytest.approx(40, abs=1)
    assert above == pytest.approx(35, abs=1)
    assert changes == pytest.approx(0.5, abs=0.05)  # of white noise


def test_an_utterance_starts_with_noise_only() -> None:
    recording = checked_recording(draw_utterance(generator(), 3).input).astype(np.float64)
    quiet, all_of_it = recording[: RATE // 5].std(), recording.std()
    assert 0 < quiet < all_of_it / 1.5
