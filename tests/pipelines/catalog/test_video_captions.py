from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.catalog.language import ChatEndpoint
from circinus.pipelines.catalog.pictures import Labels
from circinus.pipelines.catalog.prompts import RATE
from circinus.pipelines.catalog.video_captions import over_set, pipeline, with_models
from circinus.pipelines.catalog.video_captions.captioning import (
    Material,
    TimedPicture,
    captioned,
    extract,
    prompt,
    sampled,
)
from circinus.pipelines.catalog.video_captions.footage import (
    FPS,
    Caption,
    caption_of,
    checked_captions,
    checked_clip,
    clip_features,
    draw_example,
)
from circinus.pipelines.catalog.video_captions.scoring import (
    caption_score,
    iou,
    rouge_l,
    rouge_over_set,
)
from circinus.pipelines.catalog.whisper import TimedWord
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.payload import Payload
from tests.chat_service import service
from tests.tiny_gguf import write_tiny_gguf

pytest.importorskip("cv2")
pytest.importorskip("rouge_score")
real = pytest.mark.skipif(
    bool(pipeline().available()), reason="weights, recordings or the extra are missing"
)

FRAMES = np.zeros((16, 64, 64, 3), np.uint8)
SOUND = np.zeros(2 * RATE, np.int16)
CLIP: dict[str, Payload] = {"frames": FRAMES, "sound": SOUND}
RED_CIRCLE = Labels("red", "circle")
PICTURE: Payload = {"start": 0.0, "end": 2.0, "colour": "red", "shape": "circle"}
WORD: Payload = {"start": 0.5, "end": 0.9, "text": "hello"}


def caption(start: float, end: float, text: str) -> dict[str, Payload]:
    return {"start": start, "end": end, "text": text}


# --- What is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"frames": None}, "frames must be a uint8 array of 8 to 240 frames of 64 x 64 pixels"),
        ({"frames": FRAMES[:7]}, r"frames must be .* got .*\(7, 64, 64, 3\)"),
        ({"frames": FRAMES[:, :32]}, r"frames must be .* got .*\(16, 32, 64, 3\)"),
        ({"sound": SOUND.astype(np.float32)}, "sound must be an int16 array of one axis, got"),
        ({"sound": SOUND.reshape(2, -1)}, "sound must be an int16 array of one axis, got"),
        ({"sound": SOUND[: RATE - 1]}, "sound must last as long as the frames, 2 s, within 1 s"),
    ],
)
@pytest.mark.parametrize(
    ("operator", "knobs"),
    [
        ("transcript", {"model": "tiny.en", "compute": "int8", "beam": 1}),
        ("sampler", {"fps": 1, "side": 32}),
    ],
)
def test_what_is_no_clip_is_refused(
    operator: str, knobs: dict[str, str | int], parts: dict[str, Payload], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name[operator].run({**CLIP, **parts}, knobs)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"frames": FRAMES[:, :40, :40]}, r"frames must be .* each side one of \(32, 64, 128\)"),
        ({"frames": 3}, "frames must be a uint8 array of 1 to 240 square frames"),
        ({"fps": 0}, r"fps must be in \(0, 60\], got 'int'"),
        ({"seconds": float("nan")}, r"seconds must be in \(0, 60\], got 'float'"),
    ],
)
def test_what_are_no_sampled_frames_is_refused(parts: dict[str, Payload], message: str) -> None:
    good: dict[str, Payload] = {"frames": FRAMES, "fps": 8.0, "seconds": 2.0}
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["vision"].run({**good, **parts}, {"model": "network"})


@pytest.mark.parametrize(
    ("transcript", "vision", "message"),
    [
        (None, [PICTURE], "transcript must be a list of at most 1000 dicts, got 'NoneType'"),
        ([3], [PICTURE], "transcript must be a list of at most 1000 dicts, got 'list'"),
        ([WORD] * 1001, [PICTURE], "transcript must be a list of at most 1000 dicts"),
        ([{"start": 2, "end": 1, "text": "a"}], [], "transcript must be dicts of 0 <= start <="),
        ([{"start": 0, "end": 1, "text": 3}], [], "transcript must be dicts of 0 <= start <="),
        ([WORD], "red circle", "vision must be a list of at most 240 dicts, got 'str'"),
        ([WORD], [{"start": 0.0, "end": 1.0, "colour": "pink"}], "a known colour and a known"),
        ([], [{"start": 1, "end": 1, "colour": "red", "shape": "circle"}], "0 <= start < end"),
    ],
)
def test_what_are_no_words_and_pictures_is_refused(
    transcript: Payload, vision: Payload, message: str
) -> None:
    value: Payload = {"transcript": transcript, "vision": vision}
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["captioner"].run(value, {"model": "extract"})


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ("words", "output must be a list of at most 64 captions, got 'str'"),
        ([caption(0, 1, "a")] * 65, "output must be a list of at most 64 captions"),
        ([caption(1, 1, "a")], "output must be dicts of 0 <= start < end and a text"),
        ([caption(0, 61, "a")], "output must be dicts of 0 <= start < end and a text"),
        ([caption(0, 1, "a" * 1001)], "a text of at most 1000 characters"),
        ([3], "output must be dicts of 0 <= start < end and a text"),
    ],
)
def test_what_are_no_captions_is_refused(captions: Payload, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        checked_captions("output", captions)


# --- Scores --------------------------------------------------------------------------------


def test_captions_score_by_their_seconds_and_their_words() -> None:
    expected: Payload = [caption(0, 2, "a red circle"), caption(2, 4, "a blue triangle")]
    assert caption_score(expected, expected) == 1
    assert caption_score([], expected) == 0
    assert caption_score([], []) == 1
    # Half of the seconds, all of the words: 2 x 0.5 / (1 + 2).
    assert caption_score([caption(0, 1, "A red circle.")], expected) == pytest.approx(1 / 3)
    # All of the seconds, two of three words on both sides: 2 x 2/3 / (1 + 2).
    halves: Payload = [caption(0, 2, "a red square")]
    assert caption_score(halves, expected) == pytest.approx(4 / 9)


def test_seconds_that_do_not_meet_have_nothing_in_common() -> None:
    one = Caption(start=0, end=1, text="")
    assert iou(one, Caption(start=1, end=2, text="")) == 0
    assert iou(one, Caption(start=0.5, end=2, text="")) == pytest.approx(0.25)


def test_rouge_l_is_that_of_the_longest_common_subsequence() -> None:
    # "police killed the gunman" / "the gunman police killed" (Lin 2004): 2 of 4 words in order.
    assert rouge_l("the gunman police killed", "police killed the gunman") == pytest.approx(0.5)


def test_rouge_over_the_set_weighs_clips_by_their_words() -> None:
    outputs: list[Payload] = [[caption(0, 1, "one two three four")], [caption(0, 1, "six")]]
    expected: list[Payload] = [[caption(0, 1, "one two three four")], [caption(0, 1, "seven")]]
    assert rouge_over_set(outputs, expected) == pytest.approx(2 * 4 / (5 + 5))
    assert rouge_over_set([[]], [[]]) == 1
    metric = over_set().over_set
    assert metric is not None
    assert metric.of(outputs, expected, [None, None], whole=True) == pytest.approx(0.8)


# --- Operators -----------------------------------------------------------------------------


@pytest.mark.parametrize(("fps", "rows"), [(1, [4, 12]), (4, list(range(1, 16, 2)))])
def test_frames_are_sampled_in_the_middle_of_their_seconds(fps: int, rows: list[int]) -> None:
    frames = np.arange(16, dtype=np.uint8)[:, None, None, None] + FRAMES
    clip = checked_clip({"frames": frames, "sound": SOUND})
    taken = sampled(clip, fps=fps, side=64)
    assert taken.frames[:, 0, 0, 0].tolist() == rows
    assert (taken.fps, taken.seconds) == (fps, 2.0)
    assert sampled(clip, fps=fps, side=32).frames.shape == (len(rows), 32, 32, 3)


def test_a_word_belongs_to_the_picture_that_its_middle_is_in() -> None:
    material = Material(
        words=[TimedWord(0.0, 0.9, "one"), TimedWord(0.9, 1.2, "two"), TimedWord(3, 4, "late")],
        pictures=[
            TimedPicture(start=0, end=1, labels=RED_CIRCLE),
            TimedPicture(start=1, end=2, labels=Labels("blue", "triangle")),
        ],
    )
    assert captioned({"extract": extract}, material, model="extract") == [
        caption(0, 1, "red circle. one"),
        caption(1, 2, "blue triangle. two"),
    ]


def test_the_prompt_shows_one_caption_and_asks_for_another() -> None:
    first, example, last = prompt(RED_CIRCLE, "Goodbye.")
    assert example["content"] == caption_of(Labels("orange", "square"), "Please leave a message.")
    assert last["content"] == "Write a caption. Picture: red circle. Voice: Goodbye."
    assert first["content"] != last["content"]


def test_a_gguf_writes_a_line(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    captioner = with_models({"tiny": path}).by_name["captioner"]
    captions = captioner.run({"transcript": [WORD], "vision": [PICTURE]}, {"model": "tiny"})
    (line,) = checked_captions("output", captions)
    assert (line.start, line.end) == (0.0, 2.0)
    assert "\n" not in line.text


def test_an_endpoint_is_declared_and_writes() -> None:
    body = {
        "choices": [{"message": {"content": " A red circle.\nAnd more"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1},
    }
    with service(200, body) as (url, _):
        endpoint = ChatEndpoint(name="hosted", url=url, model="m")
        captioner = with_models({}, (endpoint,)).by_name["captioner"]
        value: Payload = {"transcript": [WORD], "vision": [PICTURE]}
        assert captioner.run(value, {"model": "hosted"}) == [caption(0, 2, "A red circle.")]
    assert captioner.spec.endpoints == ("hosted",)


# --- Examples ------------------------------------------------------------------------------


@real
def test_an_example_has_a_caption_for_each_segment() -> None:
    example = draw_example(np.random.Generator(np.random.PCG64(3)), 2)
    clip, captions = checked_clip(example.input), checked_captions("expected", example.expected)
    assert 2 <= len(captions) <= 4
    assert captions[-1].end == clip.seconds == len(clip.sound) / RATE
    for one, other in pairwise(captions):
        assert one.end == other.start
        assert one.text[:20] != other.text[:20]
    assert np.isfinite(clip_features(clip)).all()
    assert pipeline().size_of(example.input) == clip.seconds
    assert len(clip.frames) == round(clip.seconds * FPS)


# --- With weights --------------------------------------------------------------------------


def test_there_are_so_many_configurations() -> None:
    assert ConfigurationSpace(pipeline().graph).size == 768


@real
@pytest.mark.slow
def test_more_frames_a_second_and_a_language_model_write_better_captions() -> None:
    made = pipeline().examples
    assert made is not None
    examples = made(3, 2).examples

    def score(fps: int, captioner: str) -> float:
        configuration = Configuration(
            (
                *(("transcript", "model", "tiny.en"), ("transcript", "compute", "int8")),
                *(("transcript", "beam", 1), ("sampler", "fps", fps), ("sampler", "side", 64)),
                *(("vision", "model", "network"), ("captioner", "model", captioner)),
            )
        )
        outputs = [pipeline().run(each.input, configuration) for each in examples]
        pairs = zip(outputs, examples, strict=True)
        return float(np.mean([caption_score(output, each.expected) for output, each in pairs]))

    assert score(8, "extract") > score(1, "extract")
    assert score(8, "smollm2-135m") > score(8, "extract") + 0.1
