from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.catalog.detectors import SSD, NetworkBoxes, YoloNetwork
from circinus.pipelines.catalog.material import PARTS
from circinus.pipelines.catalog.track_objects import (
    NAME,
    idf1_score,
    mota_score,
    pipeline,
    tracked,
    with_detectors,
)
from circinus.pipelines.catalog.track_objects.appearance import (
    LOOKS,
    MOBILENET,
    mobilenet,
    unlike_vectors,
    with_looks,
)
from circinus.pipelines.catalog.track_objects.detecting import (
    CROP,
    CroppedDetections,
    detecting,
)
from circinus.pipelines.catalog.track_objects.pictures import (
    backgrounds,
    objects,
    persons,
    read_recording,
)
from circinus.pipelines.catalog.tracking.footage import (
    BoxArray,
    Detections,
    Footage,
    UInt8Array,
    checked_tracks,
)
from circinus.pipelines.catalog.tracking.mota import mota
from circinus.pipelines.catalog.tracking.tracking import iou
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.needs import Need
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.execution.weights import FOLDER, ModelWeights
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import KnobValue, Settings
from circinus.pipelines.model.payload import Payload
from tests.tiny_onnx import write_yolo

ROOT = Path(__file__).parents[3]

pytest.importorskip("cv2", reason="the extra track-objects is absent")
with_pictures = pytest.mark.skipif(
    any("opencv-doc" in str(need) for need in pipeline().available()),
    reason="Debian's package opencv-doc is absent",
)
with_weights = pytest.mark.skipif(
    bool(pipeline().available()), reason="the weights or Debian's package opencv-doc are absent"
)

CLIP = np.zeros((8, 48, 64, 3), np.uint8)
FOOTAGE: dict[str, Payload] = {"frames": CLIP[:4], "stride": 2, "length": 8, "scale": 1.0}
CROPPED: dict[str, Payload] = {
    "boxes": np.array([[0, 1, 2, 3, 4]], np.int16),
    "crops": np.zeros((1, CROP, CROP, 3), np.uint8),
    "stride": 2,
    "length": 8,
}
WITH_LOOKS: dict[str, Payload] = {
    "boxes": CROPPED["boxes"],
    "looks": np.ones((1, 5), np.float32),
    "stride": 2,
    "length": 8,
}
KNOBS: dict[str, Settings] = {
    "sampler": {"stride": 1},
    "resizer": {"width": 256},
    "detector": {"model": "ssd-mobilenet-v2", "side": 300, "threshold": 0.5},
    "appearance": {"model": "none"},
    "tracker": {"method": "sort", "gate": 0.8},
}


class Marked:
    """A detector of white pixels: the box around them all."""

    weights: tuple[ModelWeights, ...] = ()
    needs: tuple[Need, ...] = ()

    def boxes_of(self, frame: UInt8Array, side: int) -> NetworkBoxes:
        rows, columns = np.nonzero(frame[..., 0] > 200)
        if not len(rows):
            return NetworkBoxes(boxes=np.empty((0, 4)), scores=np.empty(0))
        x, y = columns.min(), rows.min()
        box = [x, y, columns.max() + 1 - x, rows.max() + 1 - y]
        return NetworkBoxes(boxes=np.array([box], np.float64), scores=np.array([0.9]))


def tracks(*rows: tuple[int, ...]) -> BoxArray:
    return np.array(rows, np.int16).reshape(-1, 6)


def configuration(of: Pipeline, **changes: KnobValue) -> Configuration:
    """The first value of each knob, but for those that are named operator_knob."""
    values = [
        (slot.operator, slot.knob.name, changes.pop(f"{slot.operator}_{slot.knob.name}", None))
        for slot in of.graph.slots
    ]
    assert not changes
    first = ConfigurationSpace(of.graph).configuration(0).values
    return Configuration(
        tuple(
            default if mine[2] is None else (mine[0], mine[1], mine[2])
            for mine, default in zip(values, first, strict=True)
        )
    )


def examples(count: int, seed: int) -> Sequence[Example]:
    make = pipeline().examples
    assert make is not None
    return make(count, seed).examples


# --- What is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [None, CLIP[..., 0], CLIP[:7], CLIP[..., :2], CLIP.astype(np.float32), CLIP[:, :31]]
)
def test_what_is_no_coloured_clip_is_refused(wrong: Payload) -> None:
    with pytest.raises(InvalidInput, match="clip must be a uint8 array of 8 to 512 BGR frames"):
        pipeline().by_name["sampler"].run(wrong, KNOBS["sampler"])
    features = pipeline().features
    assert features is not None
    with pytest.raises(InvalidInput, match="clip must be a uint8 array of 8 to 512 BGR frames"):
        features(wrong)
    with pytest.raises(OperatorFailed, match="clip must be a uint8 array of 8 to 512 BGR frames"):
        pipeline().size_of(wrong)


@pytest.mark.parametrize("operator", ["resizer", "detector"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frames": CLIP[:4, ..., 0]}, "footage.frames must be uint8 frames, BGR"),
        ({"frames": CLIP[:3]}, "footage.frames must be 4 frames of 4 x 4 pixels or more"),
        ({"stride": 0}, "footage must be a dict with 1 <= stride < length <= 512"),
        ({"scale": 0.9}, r"footage.scale must be in \[1, 64\]"),
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
        (
            {"crops": np.zeros((2, CROP, CROP, 3), np.uint8)},
            r"must be a uint8 array of shape \(1,",
        ),
        ({"boxes": np.array([[1, 1, 2, 3, 4]], np.int16)}, "times of searched frames"),
        ({"length": 513}, "detections must be a dict with"),
    ],
)
def test_crops_of_another_form_are_refused(wrong: dict[str, Payload], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["appearance"].run({**CROPPED, **wrong}, KNOBS["appearance"])


@pytest.mark.parametrize(
    "looks",
    [
        None,
        np.ones((2, 5), np.float32),
        np.ones((1, 5)),
        np.ones(5, np.float32),
        np.ones((1, 4097), np.float32),
        np.full((1, 5), np.nan, np.float32),
    ],
)
def test_looks_of_another_form_are_refused(looks: Payload) -> None:
    message = "detections.looks must be finite float32 numbers, 1 rows of at most 4096"
    with pytest.raises(InvalidInput, match=message):
        pipeline().by_name["tracker"].run({**WITH_LOOKS, "looks": looks}, KNOBS["tracker"])


@pytest.mark.parametrize(
    ("operator", "inputs", "knob"),
    [
        ("sampler", CLIP, {"stride": 3}),
        ("resizer", FOOTAGE, {"width": 100}),
        ("detector", FOOTAGE, {"side": 320}),
        ("appearance", CROPPED, {"model": "resnet"}),
        ("tracker", WITH_LOOKS, {"gate": 0.7}),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(
    operator: str, inputs: Payload, knob: Settings
) -> None:
    (name,) = knob
    with pytest.raises(InvalidInput, match=f"{name} must be one of .*, got '?{knob[name]}"):
        pipeline().by_name[operator].run(inputs, {**KNOBS[operator], **knob})


@pytest.mark.parametrize("score", [idf1_score, mota_score])
def test_tracks_of_another_form_are_refused(score: object) -> None:
    assert callable(score)
    with pytest.raises(InvalidInput, match="output must be a int16 array of at most"):
        score(None, tracks((0, 0, 1, 1, 5, 5)))
    with pytest.raises(InvalidInput, match="expected must have sizes >= 1"):
        score(tracks(), tracks((0, 0, 1, 1, 0, 5)))


def test_a_recording_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="recording must be a file that OpenCV can read"):
        next(read_recording(tmp_path / "no.avi"))


def test_weights_that_are_not_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    missing = " ".join(map(str, pipeline().available()))
    assert "weights ssd-mobilenet-v2" in missing
    assert "weights appearance" in missing
    with pytest.raises(InvalidInput, match="weights must be there: weights ssd-mobilenet-v2"):
        pipeline().by_name["detector"].run(FOOTAGE, KNOBS["detector"])


# --- The metric MOTA -----------------------------------------------------------------


def test_mota_counts_misses_false_boxes_and_changes_of_identity() -> None:
    true = tracks(*[(time, 0, 10, 10, 20, 20) for time in range(10)])
    assert mota(true, true) == 1.0
    assert mota(true[:8], true) == pytest.approx(0.8)  # two misses of ten
    changed = true.copy()
    changed[6:, 1] = 7
    assert mota(changed, true) == pytest.approx(0.9)  # one change
    false = tracks(*[(time, 5, 90, 90, 5, 5) for time in range(13)])
    both = np.concatenate([true, false])
    assert mota(both, true) == pytest.approx(-0.3)  # 13 false boxes
    assert mota_score(both, true) == 0.0


def test_mota_without_objects_is_1_where_nothing_is_drawn() -> None:
    assert mota(tracks(), tracks()) == 1.0
    assert mota(tracks((0, 0, 1, 1, 5, 5)), tracks()) == 0.0
    assert mota(tracks(), tracks((0, 0, 1, 1, 5, 5))) == 0.0


def test_a_pair_stays_though_another_box_overlaps_more() -> None:
    true = tracks((0, 0, 0, 0, 10, 10), (1, 0, 0, 0, 10, 10))
    # At time 1 identity 3 overlaps by .6, identity 4 wholly: 3 stays, and 4 is a false box.
    drawn = tracks((0, 3, 0, 0, 10, 10), (1, 3, 0, 0, 10, 6), (1, 4, 0, 0, 10, 10))
    assert mota(drawn, true) == pytest.approx(1 - 1 / 2)


# --- Detector, appearance, tracker ---------------------------------------------------


def test_a_detector_hands_on_boxes_in_pixels_of_the_clip_with_their_crops() -> None:
    frames = np.zeros((2, 40, 60, 3), np.uint8)
    frames[1, 10:30, 20:25] = 255
    footage = Footage(frames=frames, stride=4, length=8, scale=2.0)
    detect = detecting({"marked": Marked()})
    cropped = detect(footage, model="marked", side=300, threshold=0.5)
    np.testing.assert_array_equal(cropped.boxes, [[4, 40, 20, 10, 40]])
    assert cropped.crops.shape == (1, CROP, CROP, 3)
    assert cropped.crops.min() == 255
    assert not len(detect(footage, model="marked", side=300, threshold=0.95).boxes)


class Scattered(Marked):
    """Boxes that leave the frame, lie beyond it, and overlap."""

    def boxes_of(self, frame: UInt8Array, side: int) -> NetworkBoxes:
        boxes = [[-5, -5, 10, 10], [200, 5, 9, 9], [20, 20, 10, 10], [21, 20, 10, 10]]
        scores = np.array([0.6, 0.9, 0.7, 0.8])
        return NetworkBoxes(boxes=np.array(boxes, np.float64), scores=scores)


def test_boxes_end_at_the_frame_and_of_two_that_overlap_the_higher_one_stays() -> None:
    footage = Footage(frames=np.zeros((2, 40, 60, 3), np.uint8)[:1], stride=4, length=4)
    detect = detecting({"scattered": Scattered()})
    boxes = detect(footage, model="scattered", side=300, threshold=0.5).boxes
    np.testing.assert_array_equal(boxes, [[0, 21, 20, 10, 10], [0, 0, 0, 5, 5]])


def test_a_network_of_a_users_own_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "yolo.onnx"
    detector = YoloNetwork(path=path)
    (need,) = detector.needs
    assert not need.is_there()
    write_yolo(path, (40, 30, 20, 10), n_classes=3)
    assert need.is_there()
    frame = np.full((60, 96, 3), 90, np.uint8)
    boxes, scores = detector.boxes_of(frame, side=96)
    assert boxes.shape == (9, 4)  # as many as cells
    np.testing.assert_allclose(boxes, np.tile([30, 25, 20, 10], (9, 1)), atol=0.1)
    assert scores.shape == (9,)
    # At twice the side a pixel of the network is half a pixel of the frame.
    np.testing.assert_allclose(
        detector.boxes_of(frame, side=180).boxes[0], [15, 12.5, 10, 5], atol=0.1
    )
    fixed = YoloNetwork(path=path, side=64)
    assert len(fixed.boxes_of(frame, side=300).boxes) == 4


def test_a_network_whose_output_has_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "boxes.onnx"
    write_yolo(path, (40, 30, 20, 10), n_classes=0)
    with pytest.raises(InvalidInput, match=r"must have an output \(1, 4 \+ classes, n\)"):
        YoloNetwork(path=path).boxes_of(CLIP[0], side=64)


def test_a_pipeline_with_random_networks_runs_from_clip_to_tracks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    torch.manual_seed(3)
    write_yolo(tmp_path / "yolo.onnx", (40, 30, 20, 20), n_classes=3)
    (tmp_path / MOBILENET.name).mkdir()
    torch.save(mobilenet().state_dict(), tmp_path / MOBILENET.name / "mobilenetv2.pt")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    own = with_detectors({"own": YoloNetwork(path=tmp_path / "yolo.onnx")}, sides=(64,))
    assert own.weights == (MOBILENET,)
    chosen = configuration(own, appearance_model="mobilenetv2", tracker_method="app")
    clip = np.full((8, 64, 64, 3), 90, np.uint8)
    rows = checked_tracks("output", own.run(clip, chosen))
    assert set(rows[:, 1]) == {0}  # the same box in each frame: one object
    np.testing.assert_allclose(rows[:, 2:], np.tile([30, 20, 20, 20], (8, 1)), atol=1)
    assert ("appearance", str(tmp_path / MOBILENET.name / "mobilenetv2.pt")) in MODELS.held


def cropped(*colours: int) -> CroppedDetections:
    boxes = [(time, 0, 0, 9, 9) for time in range(len(colours))]
    crops = [np.full((CROP, CROP, 3), colour, np.uint8) for colour in colours]
    return CroppedDetections(
        boxes=np.array(boxes, np.int16).reshape(-1, 5),
        crops=np.array(crops, np.uint8).reshape(-1, CROP, CROP, 3),
        stride=1,
        length=8,
    )


def test_equal_colours_are_alike_and_others_are_not() -> None:
    looks = with_looks(cropped(10, 12, 250), model="colours").looks.astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(looks, axis=1), 1, atol=1e-6)
    unlike = unlike_vectors(looks, looks)
    np.testing.assert_allclose(unlike[0], [0, 0, 1], atol=1e-6)


def test_vectors_without_numbers_are_all_alike() -> None:
    looks = with_looks(cropped(10, 250), model="none").looks.astype(np.float64)
    assert looks.shape == (2, 0)
    assert not unlike_vectors(looks, looks).any()


@pytest.mark.parametrize("model", LOOKS)
def test_where_nothing_is_detected_nothing_is_looked_at(model: str) -> None:
    if model == "mobilenetv2" and not MOBILENET.need.is_there():
        pytest.skip("the weights are absent")
    output = with_looks(cropped(), model=model)
    assert len(output.looks) == 0
    assert tracked(output, method="app", gate=0.8).shape == (0, 6)


def test_a_wide_gate_follows_what_a_narrow_one_loses() -> None:
    # Boxes of 20 pixels that move by 12: an IoU of 8 / 32, so a cost of .75; at most .8 counts.
    boxes = np.array([(time, 12 * time, 0, 20, 20) for time in range(8)], np.int16)
    looks = np.empty((8, 0), np.float32)
    detections = Detections(boxes=boxes, looks=looks, stride=1, length=8)
    assert len(tracked(detections, method="iou", gate=0.8)) == 0
    assert set(tracked(detections, method="iou", gate=1.0)[:, 1]) == {0}


# --- The workload --------------------------------------------------------------------


@with_pictures
def test_parts_share_no_picture() -> None:
    for pictures in (persons, objects):
        parts = [{cut.image.tobytes() for cut in pictures(part)} for part in range(PARTS)]
        assert len(set.union(*parts)) == sum(map(len, parts))
        assert min(map(len, parts)) >= 2
    places = [{place.tobytes() for place in backgrounds(part)} for part in range(PARTS)]
    assert [len(part) for part in places] == [3, 3, 3]
    assert len(set.union(*places)) == 9


@with_pictures
def test_a_cut_out_fills_its_box_and_nothing_beside_its_shape_is_part_of_it() -> None:
    for cut in (*persons(2), *objects(2)):
        rows, columns = np.nonzero(cut.shape)
        height, width = cut.shape.shape
        assert (rows.min(), rows.max() + 1) == (0, height)
        assert (columns.min(), columns.max() + 1) == (0, width)
        assert cut.image.shape == (height, width, 3)
        assert 0.25 < np.count_nonzero(cut.shape) / cut.shape.size < 0.95


@with_pictures
def test_the_truth_of_a_clip_lies_in_its_frames_and_scores_1() -> None:
    for example in examples(3, 2):
        assert isinstance(example.input, np.ndarray)
        length, height, width, _ = example.input.shape
        rows = checked_tracks("expected", example.expected)
        assert np.all((rows[:, 0] >= 0) & (rows[:, 0] < length))
        assert np.all((rows[:, 2] >= 0) & (rows[:, 2] + rows[:, 4] <= width))
        assert np.all((rows[:, 3] >= 0) & (rows[:, 3] + rows[:, 5] <= height))
        assert 2 <= len(set(rows[:, 1].tolist())) <= 7
        assert pipeline().score_of(rows, rows) == 1.0
        assert mota_score(rows, rows) == 1.0


# --- Real weights --------------------------------------------------------------------


@with_weights
def test_the_network_draws_boxes_around_most_persons_and_more_at_a_larger_side() -> None:
    def share(side: int) -> float:
        hits, boxes = 0, 0
        for example in examples(3, 2):
            assert isinstance(example.input, np.ndarray)
            assert isinstance(example.expected, np.ndarray)
            true = example.expected[example.expected[:, 0] == 12][:, 2:].astype(np.float64)
            drawn, scores = SSD.boxes_of(example.input[12].view(np.uint8), side)
            hits += int((iou(true, drawn[scores >= 0.3]) >= 0.5).any(axis=1).sum())
            boxes += len(true)
        return hits / boxes

    assert share(396) >= share(204)
    assert share(396) > 0.6


@with_weights
def test_boxes_do_not_depend_on_the_side_of_the_call_before() -> None:
    # A network of OpenCV keeps its default boxes of the first side, so each side has its own.
    import cv2

    clip = examples(1, 2)[0].input
    assert isinstance(clip, np.ndarray)
    frame = clip[0].view(np.uint8)
    SSD.boxes_of(frame, 204)
    drawn = SSD.boxes_of(frame, 396)
    frozen, text = (str(SSD.graph.path(name)) for name in (SSD.frozen, SSD.text))
    fresh = cv2.dnn.readNetFromTensorflow(frozen, text)
    fresh.setInput(cv2.dnn.blobFromImage(frame, size=(396, 396), swapRB=True))
    rows = np.asarray(fresh.forward(), dtype=np.float64)[0, 0]
    first = rows[:, 3:5] * (frame.shape[1], frame.shape[0])
    np.testing.assert_array_equal(drawn.boxes[:, :2], first)


@with_weights
def test_real_networks_follow_objects_better_in_more_frames() -> None:
    of = pipeline()
    (example,) = examples(1, 0)
    scores = []
    for stride in (2, 8):
        chosen = configuration(
            of,
            sampler_stride=stride,
            detector_side=396,
            appearance_model="mobilenetv2",
            tracker_method="app",
        )
        scores.append(of.score_of(of.run(example.input, chosen), example.expected))
    assert scores[0] > 0.8
    assert scores[0] >= scores[1]


@with_weights
def test_a_recording_of_pedestrians_can_be_followed() -> None:
    # It has no labels: that some are followed is all that is tried.
    frames = [frame for _, frame in zip(range(8), read_recording(), strict=False)]
    of = pipeline()
    output = of.run(np.stack(frames), configuration(of, sampler_stride=2, detector_side=300))
    rows = checked_tracks("output", output)
    assert len(set(rows[:, 1].tolist())) >= 2


# --- Its page and its query ----------------------------------------------------------


def test_it_is_a_chain_of_2592_configurations() -> None:
    graph = pipeline().graph
    assert ConfigurationSpace(graph).size == 2592
    names = ["sampler", "resizer", "detector", "appearance", "tracker"]
    assert [spec.name for spec in graph.operators] == names
    assert pipeline().size_of(CLIP) == 8.0


def test_its_page_has_every_knob_with_its_values() -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {NAME}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    for slot in pipeline().graph.slots:
        values = ", ".join(f"{value}" for value in slot.knob.values)
        assert f"| {slot.operator} | {slot.knob.name} | {values} |" in section
    assert "2,592 configurations" in section


def test_its_query_fits_it() -> None:
    from circinus.api.query_file import query_of, read_document
    from circinus.api.schemas.query import to_query
    from circinus.pipelines.io.presets import PRESETS
    from circinus.pipelines.model.query import fitted

    request = query_of(read_document(ROOT / "examples" / "models" / f"{NAME}.yaml"))
    assert request.pipeline == NAME
    fitted(to_query(request), pipeline().graph, PRESETS["local"])
