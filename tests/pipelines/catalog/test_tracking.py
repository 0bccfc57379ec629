from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.catalog.tracking import pipeline
from circinus.pipelines.catalog.tracking.detecting import (
    denoised,
    detected,
    resized,
    sampled,
    shifts,
)
from circinus.pipelines.catalog.tracking.footage import (
    LARGEST_CLIP,
    BoxArray,
    Detections,
    FloatArray,
    Footage,
    UInt8Array,
)
from circinus.pipelines.catalog.tracking.tracking import (
    FIRST_SPEED,
    METHODS,
    Q,
    R,
    best_pairs,
    cornered,
    generalised_iou,
    greedy_pairs,
    idf1,
    iou,
    motion_of,
    tracked,
)
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload

pytestmark = pytest.mark.skipif(bool(pipeline().available()), reason="the extra is absent")

CLIP = np.zeros((8, 64, 96), np.uint8)
FOOTAGE: dict[str, Payload] = {"frames": CLIP, "stride": 2, "length": 15, "scale": 1.0}
FOUND: dict[str, Payload] = {
    "boxes": np.array([[0, 1, 2, 3, 4]], np.int16),
    "looks": np.zeros((1, 8), np.uint8),
    "stride": 2,
    "length": 15,
}
KNOBS: dict[str, Settings] = {
    "sampler": {"stride": 1},
    "resizer": {"width": 240},
    "denoiser": {"kind": "gauss"},
    "detector": {"method": "medbg"},
    "tracker": {"method": "sort"},
}


def tracks(*rows: tuple[int, ...]) -> BoxArray:
    return np.array(rows, np.int16).reshape(-1, 6)


def detections(*boxes: tuple[int, ...], stride: int = 1, length: int = 12) -> Detections:
    looks = np.tile(np.array([255, *[0] * 7], np.uint8), (len(boxes), 1))
    rows = np.array(boxes, np.int16).reshape(-1, 5)
    return Detections(boxes=rows, looks=looks, stride=stride, length=length)


def moving_square(n_frames: int = 16, step: int = 6) -> UInt8Array:
    clip = np.full((n_frames, 96, 160), 40, np.uint8)
    for time, frame in enumerate(clip):
        frame[30:54, 10 + step * time : 34 + step * time] = 200
    return clip


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"clip",
        CLIP[:7],
        CLIP.astype(np.float32),
        CLIP[:, :31],
        CLIP[:, :, :31],
        np.broadcast_to(np.uint8(0), (8, 2049, 64)),
        np.broadcast_to(np.uint8(0), (513, 64, 64)),
        np.broadcast_to(np.uint8(0), (LARGEST_CLIP // 2**16 + 1, 256, 256)),
    ],
)
def test_what_is_no_clip_is_refused(wrong: Payload) -> None:
    with pytest.raises(InvalidInput, match="clip must be a uint8 array of 8 to 512 grey frames"):
        pipeline().by_name["sampler"].run(wrong, KNOBS["sampler"])


def test_a_clip_of_the_largest_size_is_taken() -> None:
    clip = np.zeros((LARGEST_CLIP // 2**16, 256, 256), np.uint8)
    footage = pipeline().by_name["sampler"].run(clip, {"stride": 4})
    assert isinstance(footage, dict)
    assert footage["length"] == len(clip)


@pytest.mark.parametrize("operator", ["resizer", "denoiser", "detector"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frames": CLIP[0]}, "footage.frames must be uint8 frames"),
        ({"frames": CLIP[:7]}, "footage.frames must be 8 frames of 4 x 4 pixels"),
        (
            {"frames": CLIP[:, :3]},
            "footage.frames must be 8 frames of 4 x 4 pixels",
        ),
        ({"stride": 0}, "footage must be a dict with 1 <= stride < length <= 512"),
        ({"length": None}, "footage must be a dict with 1 <= stride < length <= 512"),
        ({"scale": float("nan")}, r"footage.scale must be in \[1, 42.6667\]"),
        ({"scale": 0.9}, r"footage.scale must be in \[1, 42.6667\]"),
        ({"scale": 43}, r"footage.scale must be in \[1, 42.6667\]"),
        ({"stride": 15}, "footage must be a dict with 1 <= stride < length <= 512"),
    ],
)
def test_footage_of_another_form_is_refused(
    operator: str, wrong: dict[str, Payload], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name[operator].run({**FOOTAGE, **wrong}, KNOBS[operator])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"boxes": []}, "detections.boxes must be a int16 array"),
        ({"boxes": np.ones((601, 5), np.int16)}, "at most 600 rows of 5"),
        ({"boxes": np.array([[1, 1, 2, 3, 4]], np.int16)}, "times of searched frames"),
        ({"boxes": np.array([[0, 1, 2, 0, 4]], np.int16)}, "must have sizes >= 1"),
        ({"looks": np.zeros((2, 8), np.uint8)}, "detections.looks must have 1 rows, got 2"),
        ({"length": 513}, "detections must be a dict with"),
    ],
)
def test_detections_of_another_form_are_refused(wrong: dict[str, Payload], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["tracker"].run({**FOUND, **wrong}, KNOBS["tracker"])


@pytest.mark.parametrize("wrong", [None, np.zeros((3, 5), np.int16), np.ones((3, 6))])
def test_tracks_of_another_form_are_refused(wrong: Payload) -> None:
    with pytest.raises(OperatorFailed, match="output must be a int16 array of at most"):
        pipeline().score_of(wrong, tracks((0, 0, 1, 1, 5, 5)))


def test_a_track_without_size_is_refused() -> None:
    with pytest.raises(OperatorFailed, match="expected must have sizes >= 1"):
        pipeline().score_of(tracks(), tracks((0, 0, 1, 1, 0, 5)))


@pytest.mark.parametrize("operator", ["denoiser", "detector"])
def test_a_kind_that_does_not_exist_is_refused(operator: str) -> None:
    (knob,) = KNOBS[operator]
    with pytest.raises(InvalidInput, match=f"{knob} must be .*, got 'best'"):
        pipeline().by_name[operator].run(FOOTAGE, {knob: "best"})


def test_a_tracker_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="method must be one of iou, sort, app, got 'best'"):
        pipeline().by_name["tracker"].run(FOUND, {"method": "best"})


def test_boxes_overlap_as_their_areas_say() -> None:
    a = np.array([[0.0, 0, 4, 4]])
    b = np.array([[2.0, 0, 4, 4], [0, 0, 4, 4], [6, 0, 2, 4]])
    # Intersections 8, 16, 0; unions 24, 16, 24; boxes around both 24, 16, 32.
    np.testing.assert_allclose(iou(a, b), [[1 / 3, 1, 0]])
    np.testing.assert_allclose(generalised_iou(a, b), [[1 / 3, 1, -8 / 32]])


def test_greedy_pairs_take_the_cheapest_first_and_best_pairs_the_cheapest_sum() -> None:
    costs = np.array([[0.1, 0.2], [0.2, 0.7]])
    assert greedy_pairs(costs, 0.8) == [(0, 0), (1, 1)]
    assert best_pairs(costs, 0.8) == [(0, 1), (1, 0)]
    assert greedy_pairs(costs, 0.5) == [(0, 0)]


def test_best_pairs_cost_the_least_of_all_pairings() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        costs = rng.random((4, 4))
        limit = 0.6
        capped = np.minimum(costs, limit)
        least = min(capped[range(4), p].sum() for p in itertools.permutations(range(4)))
        pairs = best_pairs(costs, limit)
        paid = sum(costs[pair] for pair in pairs) + limit * (4 - len(pairs))
        assert paid == pytest.approx(least)
        assert all(costs[pair] <= limit for pair in pairs)


def test_the_motion_is_that_of_a_kalman_filter_in_matrices() -> None:
    rng = np.random.default_rng(5)
    motion = motion_of(np.array([10.0, 20, 4, 6]))
    state, spread = np.array([12.0, 0]), np.diag([R, FIRST_SPEED])  # centre of x, its velocity
    for t in (1, 2, 4, 1):
        move, push = np.array([[1.0, t], [0, 1]]), np.array([t * t / 2, t])
        state, spread = move @ state, move @ spread @ move.T + Q * np.outer(push, push)
        seen = rng.uniform(0, 50, 4)
        gain = spread[:, 0] / (spread[0, 0] + R)
        state = state + gain * (seen[0] - state[0])
        spread = spread - np.outer(gain, spread[0])
        motion = motion.after(t).measured(seen)
        np.testing.assert_allclose([motion.x[0], motion.v[0]], state)
        np.testing.assert_allclose([[motion.a, motion.b], [motion.b, motion.c]], spread)


def test_a_box_never_shrinks_to_nothing() -> None:
    np.testing.assert_allclose(cornered(np.array([5.0, 5, -3, 4])), [4.5, 3, 1, 4])


def test_what_two_identities_share_is_counted_for_the_better_one() -> None:
    true = tracks(*[(time, 0, 10, 10, 20, 20) for time in range(10)])
    split = true.copy()
    split[6:, 1] = 7
    # 6 of 10 boxes under the better identity: 2 * 6 / (10 + 10).
    assert idf1(split, true) == pytest.approx(0.6)


def test_swapped_identities_cost_the_frames_after_the_swap() -> None:
    left = [(time, 0, 0, 0, 10, 10) for time in range(5)]
    right = [(time, 1, 50, 0, 10, 10) for time in range(5)]
    found = tracks(*left, *right)
    found[[3, 4, 8, 9], 1] ^= 1
    # Three of five frames agree for each of the two: 2 * 6 / 20.
    assert idf1(found, tracks(*left, *right)) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("found", "score"),
    [
        (tracks(), 0.0),
        (tracks((0, 3, 0, 0, 10, 10)), 2 / 3),
        (tracks((0, 3, 0, 0, 10, 5), (1, 3, 0, 0, 10, 4)), 0.5),  # IoU of 0.5, which counts, 0.4
        (tracks((0, 3, 0, 0, 10, 10), (1, 3, 0, 0, 10, 10), (1, 4, 50, 0, 9, 9)), 4 / 5),
        (tracks((2, 3, 0, 0, 10, 10)), 0.0),
    ],
)
def test_misses_and_false_boxes_lower_the_score(found: BoxArray, score: float) -> None:
    true = tracks((0, 0, 0, 0, 10, 10), (1, 0, 0, 0, 10, 10))
    assert idf1(found, true) == pytest.approx(score)


@pytest.mark.parametrize("method", METHODS)
def test_frames_between_sights_are_filled_in_straight(method: str) -> None:
    seen = detections((0, 10, 0, 20, 20), (4, 14, 0, 20, 20), (8, 18, 0, 20, 20), stride=4)
    # One pixel a frame; after the last search, at 8, it stays.
    expected = [(t, 0, 10 + min(t, 8), 0, 20, 20) for t in range(12)]
    np.testing.assert_array_equal(tracked(seen, method=method), tracks(*expected))


def test_what_was_seen_too_seldom_is_taken_for_noise() -> None:
    boxes = [(time, 10, 0, 20, 20) for time in range(7)]
    assert len(tracked(detections(*boxes), method="iou")) == 0
    assert len(tracked(detections(*boxes, (7, 10, 0, 20, 20)), method="iou")) == 8


def test_a_kalman_filter_finds_again_what_was_hidden_and_the_last_place_does_not() -> None:
    boxes = [(time, 10 + 5 * time, 0, 20, 20) for time in range(22) if time not in range(9, 14)]
    seen = detections(*boxes, length=22)
    assert set(tracked(seen, method="iou")[:, 1]) == {0, 1}
    assert set(tracked(seen, method="sort")[:, 1]) == {0}


def test_a_look_tells_apart_what_jumps_farther_than_its_size() -> None:
    steps = [(4 * step, 40 * step, 0, 20, 20) for step in range(6)]
    others = [(4 * step, 230 - 40 * step, 30, 20, 20) for step in range(6)]
    seen = detections(*sorted([*steps, *others]), stride=4, length=24)
    dark, bright = [255, *[0] * 7], [*[0] * 7, 255]
    looks = np.array([bright if box[2] else dark for box in seen.boxes], np.uint8)
    rows = tracked(replace(seen, looks=looks), method="app")
    assert len(tracked(seen, method="iou")) == 0
    for identity in (0, 1):
        assert len(set(rows[rows[:, 1] == identity][:, 3])) == 1  # each stays in its row
    assert len(rows) == 48


def test_sampling_and_resizing_keep_count_of_the_clip() -> None:
    footage = resized(sampled(moving_square(), stride=4), width=80)
    assert footage.frames.shape == (4, 48, 80)
    assert (footage.stride, footage.length, footage.scale) == (4, 16, 2.0)


def test_a_gaussian_keeps_the_brightness_and_lowers_the_noise() -> None:
    noise = np.random.default_rng(2).normal(128, 20, (8, 64, 96)).astype(np.uint8)
    smooth = denoised(Footage(frames=noise, stride=1, length=8), kind="gauss").frames
    assert smooth.mean() == pytest.approx(noise.mean(), abs=1)
    assert smooth.std() < noise.std() / 3


@pytest.mark.parametrize("shift", [(0, 0), (5, -3), (-8, 2)])
def test_the_shift_of_a_camera_is_found(shift: tuple[int, int]) -> None:
    scene = np.repeat(np.repeat(np.random.default_rng(4).integers(0, 255, (40, 60)), 8, 0), 8, 1)
    x, y = shift
    views = [scene[20 : 20 + 270, 20 : 20 + 440], scene[20 - y : 290 - y, 20 - x : 460 - x]]
    found: FloatArray = shifts(np.stack(views).astype(np.uint8))
    np.testing.assert_allclose(found, [[0, 0], shift], atol=0.6)


@pytest.mark.parametrize(
    ("method", "stride"), [("diff", 4), ("medbg", 2), ("mog2", 2), ("knn", 2), ("medbg+", 2)]
)
@pytest.mark.parametrize("width", [160, 80])
def test_a_square_is_found_where_it_is_in_pixels_of_the_clip(
    method: str, stride: int, width: int
) -> None:
    # Differences see all of it only where it jumps farther than its 24 pixels: 4 frames, 32.
    footage = resized(sampled(moving_square(step=8), stride=stride), width=width)
    found = detected(footage, method=method).boxes
    middle = found[found[:, 0] == 8].astype(np.float64)
    assert iou(middle[:, 1:], np.array([[10.0 + 8 * 8, 30, 24, 24]])).max() > 0.8


def test_nothing_is_found_where_nothing_moves() -> None:
    still = sampled(np.full((8, 64, 96), 90, np.uint8), stride=1)
    output = tracked(detected(still, method="medbg"), method="app")
    assert output.shape == (0, 6)
    assert pipeline().score_of(output, tracks((0, 0, 1, 1, 5, 5))) == 0.0


def test_the_truth_of_a_clip_lies_in_its_frames_and_scores_1() -> None:
    examples = pipeline().examples
    assert examples is not None
    example = examples(1, 4).examples[0]
    assert isinstance(example.expected, np.ndarray)
    rows = example.expected.view(np.int16)
    assert rows[:, 2:4].min() >= 0
    assert (rows[:, 2] + rows[:, 4]).max() <= 480
    assert (rows[:, 3] + rows[:, 5]).max() <= 270
    assert pipeline().score_of(rows, rows) == 1.0
