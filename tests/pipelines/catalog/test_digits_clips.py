from __future__ import annotations

import numpy as np
import pytest

from circinus.pipelines.catalog.digits import pipeline
from circinus.pipelines.catalog.digits.clips import clip_features, draw_clip, split_glyphs
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.payload import encode


def examples(count: int, seed: int) -> Dataset:
    make = pipeline().examples
    assert make is not None
    return make(count, seed)


def test_a_data_set_of_no_clips_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must have 1 to"):
        examples(0, 1)


@pytest.mark.parametrize("wrong", [np.zeros((12, 64, 112), np.float32), np.zeros((3,), np.uint8)])
def test_features_of_what_is_no_clip_are_refused(wrong: np.ndarray) -> None:
    features = pipeline().features
    assert features is not None
    with pytest.raises(InvalidInput, match=r"clip must be a uint8 array of shape \(12, 64, 112\)"):
        features(wrong)


def test_clips_are_frames_of_grey_levels_with_three_digits() -> None:
    for example in examples(5, 1).examples:
        clip = example.input
        assert isinstance(clip, np.ndarray)
        assert clip.dtype == np.uint8
        assert clip.shape == (12, 64, 112)
        assert isinstance(example.expected, str)
        assert len(example.expected) == 3
        assert example.expected.isdecimal()


def test_the_same_seed_gives_the_same_clips_and_another_seed_others() -> None:
    first, again, other = ([encode(e.input) for e in examples(3, s).examples] for s in (7, 7, 8))
    assert first == again
    assert not set(first) & set(other)


def test_a_longer_data_set_starts_with_the_shorter_one() -> None:
    short, long = ([encode(e.input) for e in examples(n, 7).examples] for n in (2, 4))
    assert long[:2] == short


def test_digits_that_are_learnt_from_are_never_shown() -> None:
    learnt, shown = (set(glyphs.indices) for glyphs in split_glyphs())
    assert not learnt & shown
    assert len(learnt | shown) == 1797
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert set(draw_clip(rng).glyphs) <= shown


def test_clips_show_the_digits_they_are_labelled_with() -> None:
    _, held_out = split_glyphs()
    label_of = dict(zip(held_out.indices, held_out.labels, strict=True))
    clip = draw_clip(np.random.default_rng(1))
    assert clip.digits == "".join(str(label_of[index]) for index in clip.glyphs)


def test_half_of_the_light_shows_the_same_scene_darker() -> None:
    usual, dim = (draw_clip(np.random.default_rng(1), light) for light in (1.0, 0.5))
    assert (dim.digits, dim.glyphs) == (usual.digits, usual.glyphs)
    _, usual_brightness, usual_contrast, *_ = clip_features(usual.frames)
    _, brightness, contrast, *_ = clip_features(dim.frames)
    # Noise that is cut off at black and white keeps both from falling to just a half.
    assert 0.5 * usual_brightness < brightness < 0.8 * usual_brightness
    assert contrast < 0.8 * usual_contrast


def test_noise_raises_the_noise_feature_and_specks_the_speck_feature() -> None:
    rng = np.random.default_rng(2)
    quiet = np.full((12, 64, 112), 128, np.uint8)
    noisy = np.clip(quiet + rng.normal(0, 20, quiet.shape), 1, 254).astype(np.uint8)
    specked = np.where(rng.random(quiet.shape) < 0.1, 255, quiet).astype(np.uint8)
    # noise level, brightness, contrast, specks, change
    assert clip_features(quiet) == pytest.approx([0, 128, 0, 0, 0])
    # 7,104 differences: their median absolute value is known to about 2 %
    assert clip_features(noisy)[0] == pytest.approx(20, rel=0.1)
    assert clip_features(specked)[3] == pytest.approx(0.1, abs=0.02)
    assert clip_features(specked)[0] == 0
