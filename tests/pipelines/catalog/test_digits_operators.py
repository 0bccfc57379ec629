from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.catalog.digits import FULL_GRID, pipeline, voted
from circinus.pipelines.catalog.digits.clips import draw_clip
from circinus.pipelines.catalog.digits.describing import described_crops, kind_of
from circinus.pipelines.catalog.digits.frames import denoised, located, sampled
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload, encode

CLIP = draw_clip(np.random.default_rng(11)).frames
CROPS = located(CLIP[:2], method="fixed")
SIZES = {"raw": 256, "pool8": 64, "hog": 128}


def operate(operator: str, inputs: Payload, knobs: Settings) -> npt.NDArray[np.generic]:
    output = pipeline().by_name[operator].run(inputs, knobs)
    again = pipeline().by_name[operator].run(inputs, knobs)
    assert encode(output) == encode(again)  # deterministic
    assert isinstance(output, np.ndarray)
    return output


@pytest.mark.parametrize("wrong", [None, "clip", CLIP[:3], CLIP.astype(np.float32), CLIP[:, :32]])
def test_the_sampler_refuses_what_is_no_clip(wrong: Payload) -> None:
    with pytest.raises(InvalidInput, match=r"clip must be a uint8 array of shape \(12, 64, 112\)"):
        operate("sampler", wrong, {"stride": 1, "scale": 1.0})


@pytest.mark.parametrize("wrong", [7, CLIP[0], CLIP[:0], CLIP[:, :60], CLIP.astype(np.float32)])
@pytest.mark.parametrize(
    ("operator", "knobs"), [("denoiser", {"kind": "none"}), ("locator", {"method": "fixed"})]
)
def test_frames_of_another_form_are_refused(
    operator: str, knobs: Settings, wrong: Payload
) -> None:
    with pytest.raises(InvalidInput, match="frames must be a uint8 array of shape"):
        operate(operator, wrong, knobs)


@pytest.mark.parametrize("wrong", [{}, CROPS[0], CROPS[:, :2], CROPS[:0], CROPS.astype(np.int64)])
def test_crops_of_another_form_are_refused(wrong: Payload) -> None:
    with pytest.raises(InvalidInput, match="crops must be a uint8 array of shape"):
        operate("features", wrong, {"kind": "raw"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "features must be a float32 array"),
        (np.zeros((2, 3, 64)), "features must be a float32 array"),
        (np.zeros((2, 4, 64), np.float32), "features must be a float32 array"),
        (np.zeros((2, 3, 65), np.float32), r"features per crop must be one of \[64, 128, 256\]"),
        (np.full((2, 3, 64), np.nan, np.float32), "features must be finite"),
    ],
)
def test_features_of_another_form_are_refused(wrong: Payload, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        operate("classifier", wrong, {"model": "tree"})


@pytest.mark.parametrize("wrong", [None, np.zeros((1, 3, 9), np.float32)])
def test_opinions_of_another_form_are_refused(wrong: Payload) -> None:
    with pytest.raises(InvalidInput, match="log-probabilities must be a float32 array"):
        operate("voter", wrong, {"rule": "logprob"})


@pytest.mark.parametrize(
    ("operator", "knob", "inputs"),
    [
        ("denoiser", "kind", CLIP),
        ("locator", "method", CLIP),
        ("features", "kind", CROPS),
        ("classifier", "model", np.zeros((1, 3, 64), np.float32)),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(
    operator: str, knob: str, inputs: Payload
) -> None:
    with pytest.raises(InvalidInput, match=f"{knob} must be .*, got 'magic'"):
        operate(operator, inputs, {knob: "magic"})


@pytest.mark.parametrize(("stride", "frames"), [(1, 12), (2, 6), (4, 3), (12, 1)])
@pytest.mark.parametrize(("scale", "size"), [(0.5, (32, 56)), (1.0, (64, 112))])
def test_the_sampler_keeps_frames_and_size(
    stride: int, frames: int, scale: float, size: tuple[int, int]
) -> None:
    output = operate("sampler", CLIP, {"stride": stride, "scale": scale})
    assert output.shape == (frames, *size)
    assert output.dtype == np.uint8


@given(st.lists(st.integers(0, 255), min_size=4, max_size=4))
def test_half_size_is_the_mean_of_each_block(block: list[int]) -> None:
    frames = np.array(block, np.uint8).reshape(1, 2, 2)
    assert sampled(frames, stride=1, scale=0.5).item() == int(np.mean(block) + 0.5)


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("kind", FULL_GRID["denoiser"]["kind"])
def test_the_denoiser_keeps_the_form_of_frames(kind: str, scale: float) -> None:
    frames = sampled(CLIP, stride=4, scale=scale)
    output = operate("denoiser", frames, {"kind": kind})
    assert output.shape == frames.shape
    assert output.dtype == np.uint8


@pytest.mark.parametrize("kind", FULL_GRID["denoiser"]["kind"])
def test_a_flat_frame_has_nothing_to_clean(kind: str) -> None:
    frames = np.full((2, 32, 56), 77, np.uint8)
    np.testing.assert_array_equal(denoised(frames, kind=kind), frames)


@pytest.mark.parametrize("kind", ["gauss", "median3", "nlm"])
def test_cleaning_brings_a_noisy_frame_closer_to_the_clean_one(kind: str) -> None:
    clean = np.full((1, 64, 112), 60, np.uint8)
    clean[:, 20:44, 30:80] = 180
    noise = np.random.default_rng(3).normal(0, 20, clean.shape)
    noisy = np.clip(clean + noise, 0, 255).astype(np.uint8)

    def error(frames: npt.NDArray[np.uint8]) -> float:
        return float(np.square(frames.astype(float) - clean).mean())

    assert error(denoised(noisy, kind=kind)) < error(noisy) / 2


def test_the_median_removes_single_specks() -> None:
    frames = np.full((1, 32, 56), 50, np.uint8)
    frames[0, 5::6, 5::6] = 255
    assert (denoised(frames, kind="median3") == 50).all()


def test_non_local_means_are_what_their_formula_says() -> None:
    # Brute force from the formula in the module, on pixels whose whole window lies inside.
    image = np.random.default_rng(4).integers(0, 256, (12, 14)).astype(np.uint8)
    x = image.astype(float)
    steps = np.abs(np.diff(x[::2], axis=1))
    sigma2 = (1.4826 * np.median(steps) / np.sqrt(2)) ** 2
    got = denoised(image[None], kind="nlm")[0]
    for r in range(3, 9):
        for c in range(3, 11):
            total = weights = 0.0
            for dy in range(-2, 3):
                for dx in range(-2, 3):
                    here = x[r - 1 : r + 2, c - 1 : c + 2]
                    there = x[r + dy - 1 : r + dy + 2, c + dx - 1 : c + dx + 2]
                    excess = max(np.square(here - there).mean() - 2 * sigma2, 0)
                    weight = np.exp(-excess / (0.36 * sigma2))
                    total += weight * x[r + dy, c + dx]
                    weights += weight
            assert abs(got[r, c] - total / weights) <= 0.51  # rounded to a grey level


@pytest.mark.parametrize("stride", [1, 12])
@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("method", FULL_GRID["locator"]["method"])
def test_the_locator_gives_three_crops_per_frame(method: str, scale: float, stride: int) -> None:
    frames = sampled(CLIP, stride=stride, scale=scale)
    output = operate("locator", frames, {"method": method})
    assert output.shape == (len(frames), 3, 16, 16)
    assert output.dtype == np.uint8


def display(down: int, right: int) -> npt.NDArray[np.uint8]:
    """One frame with three crosses of 26 pixels, 28 apart, moved from the middle."""
    frame = np.full((1, 64, 112), 40, np.uint8)
    for place in (-1, 0, 1):
        top, left = 32 - 13 + down, 56 - 13 + 28 * place + right
        frame[0, top : top + 26, left + 8 : left + 18] = 200
        frame[0, top + 8 : top + 18, left : left + 26] = 200
    return frame


@pytest.mark.parametrize("method", ["project", "match"])
@pytest.mark.parametrize(("down", "right"), [(0, 0), (8, 0), (0, -9), (-6, 10)])
def test_a_moved_display_is_found(method: str, down: int, right: int) -> None:
    centred = located(display(0, 0), method="fixed").astype(float)
    moved = display(down, right)
    found = np.abs(located(moved, method=method) - centred).mean()
    assert found < 12  # of 160 grey levels: at most about a pixel off
    if (down, right) != (0, 0):
        assert found < np.abs(located(moved, method="fixed") - centred).mean() / 3


def test_crops_stay_inside_frames_of_either_scale() -> None:
    for scale in (0.5, 1.0):
        frames = sampled(np.full((12, 64, 112), 200, np.uint8), stride=12, scale=scale)
        for method in ("fixed", "project", "match"):
            assert (located(frames, method=method) == 200).all()


@pytest.mark.parametrize("kind", FULL_GRID["features"]["kind"])
def test_features_have_their_size(kind: str) -> None:
    output = operate("features", CROPS, {"kind": kind})
    assert output.shape == (2, 3, SIZES[kind])
    assert output.dtype == np.float32
    assert kind_of(SIZES[kind]) == kind


@pytest.mark.parametrize("kind", FULL_GRID["features"]["kind"])
def test_features_ignore_brightness_and_contrast(kind: str) -> None:
    cells = np.random.default_rng(5).integers(0, 110, (1, 3, 4, 4))
    dim = cells.repeat(4, axis=2).repeat(4, axis=3).astype(np.uint8)
    bright = (2 * dim + 30).astype(np.uint8)
    np.testing.assert_allclose(
        described_crops(bright, kind=kind), described_crops(dim, kind=kind), atol=0.1
    )


@pytest.mark.parametrize("kind", FULL_GRID["features"]["kind"])
def test_a_crop_without_contrast_has_features(kind: str) -> None:
    assert (described_crops(np.full((1, 3, 16, 16), 9, np.uint8), kind=kind) == 0).all()


def test_an_edge_falls_into_the_histogram_of_its_direction() -> None:
    crop = np.zeros((1, 1, 16, 16), np.uint8)
    crop[..., 8:] = 200  # brighter to the right: direction 0
    histograms = described_crops(crop, kind="hog").reshape(8, 4, 4)
    assert histograms[0].sum() == pytest.approx(histograms.sum())
    # the gradient is felt in columns 7 and 8: the last of cell 1, the first of cell 2
    assert (histograms[0, :, 1:3] > 0).all()
    assert (histograms[0, :, [0, 3]] == 0).all()


@pytest.mark.parametrize("kind", FULL_GRID["features"]["kind"])
@pytest.mark.parametrize("model", FULL_GRID["classifier"]["model"])
def test_classifiers_give_log_probabilities(model: str, kind: str) -> None:
    features = described_crops(CROPS, kind=kind)
    output = operate("classifier", features, {"model": model})
    assert output.shape == (2, 3, 10)
    assert output.dtype == np.float32
    np.testing.assert_allclose(np.exp(output.astype(np.float64)).sum(axis=2), 1, atol=1e-4)


def test_votes_of_all_frames_count() -> None:
    opinions = np.full((3, 3, 10), -5.0, np.float32)
    opinions[0, :, 1] = -1  # one frame is sure of 1: -1 - 5 - 5 = -11 together
    opinions[1:, :, 2] = -2  # two are fairly sure of 2: -5 - 2 - 2 = -9
    assert voted(opinions, rule="logprob") == "222"
