"""Pictures of easy-VQA, what models say of them, and sequences of what frames show."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch

from circinus.pipelines.catalog.efficientnet import LITE, embeddings, loaded_network
from circinus.pipelines.catalog.picture_models import (
    CLASSES,
    NAMES,
    WEIGHTS,
    by_network,
    log_probabilities,
    train_network,
    training_frames,
)
from circinus.pipelines.catalog.pictures import (
    COLOURS,
    EASY_VQA,
    SHAPES,
    SIDE,
    Camera,
    Labels,
    drawn_frame,
    labels_of,
    pictures,
    shrunk,
)
from circinus.pipelines.catalog.sequences import CHANGE, LABELS, likeliest, runs_of
from circinus.pipelines.errors import InvalidInput

cv2 = pytest.importorskip("cv2")
real = pytest.mark.skipif(
    not all(each.need.is_there() for each in WEIGHTS), reason="weights are missing"
)


def generator(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


# --- Pictures ------------------------------------------------------------------------------


def test_pictures_that_are_not_the_known_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CIRCINUS_MODELS", str(tmp_path))
    pictures.cache_clear()
    images = tmp_path / "easy-vqa" / "test" / "images"
    images.mkdir(parents=True)
    with pytest.raises(InvalidInput, match=r"weights must be there: weights easy-vqa \(5,000"):
        pictures("test")
    (images.parent / "questions.json").write_text(json.dumps([]))
    image = cv2.imencode(".png", np.zeros((64, 64, 3), np.uint8))[1].tobytes()
    for number in range(1000):
        (images / f"{number}.png").write_bytes(image)
    with pytest.raises(InvalidInput, match="must be pictures that together have the SHA-256 "):
        pictures("test")


@pytest.mark.parametrize(
    ("questions", "labels"),
    [
        ([("what is the blue shape?", "rectangle")], Labels("blue", "rectangle")),
        ([("is there a red circle?", "yes")], Labels("red", "circle")),
        ([("what color is the circle?", "teal")], Labels("teal", "circle")),
        # It does not lack red, so it is red; it is no circle, which leaves two shapes.
        ([("is there not a red shape?", "no"), ("is there a circle?", "no")], None),
        ([("is no triangle present?", "yes"), ("what color is the shape?", "red")], None),
        (
            [("is no triangle present?", "no"), ("what color is the shape?", "red")],
            Labels("red", "triangle"),
        ),
    ],
)
def test_what_a_picture_shows_is_read_off_its_questions(
    questions: list[tuple[str, str]], labels: Labels | None
) -> None:
    assert labels_of(questions) == labels


def test_a_still_clear_camera_shows_the_picture_as_it_is() -> None:
    pixels = np.full((64, 64, 3), (200, 10, 30), np.uint8)
    camera = Camera(noise=0, shift=0, light=0, hidden=0)
    frame = drawn_frame(pixels, camera, generator())
    assert frame.shape == (SIDE, SIDE, 3)
    assert (frame == (200, 10, 30)).all()


def test_frames_are_shrunk_and_never_enlarged() -> None:
    frames = np.zeros((2, 64, 64, 3), np.uint8)
    assert shrunk(frames, 32).shape == (2, 32, 32, 3)
    assert shrunk(frames, 128) is frames


@real
def test_most_pictures_are_labelled_and_have_their_questions() -> None:
    assert len(pictures("test")) > 800
    for picture in pictures("test")[:50]:
        assert labels_of(picture.questions) == picture.labels
        assert picture.pixels.shape == (64, 64, 3)


# --- Sequences -----------------------------------------------------------------------------


def test_a_sequence_is_the_likeliest_of_all() -> None:
    # All sequences of 4 frames over 3 labels, their changes paid for, against the search.
    rng = generator()
    labels = [0, 5, 20]
    for _ in range(20):
        P = np.full((4, CLASSES), -50.0, np.float32)
        for label in labels:
            colour, shape = COLOURS.index(LABELS[label].colour), SHAPES.index(LABELS[label].shape)
            P[:, colour] = rng.uniform(-6, 0, 4)
            P[:, len(COLOURS) + shape] = rng.uniform(-6, 0, 4)

        def value(row: tuple[int, ...], P: np.ndarray = P) -> float:
            emitted = sum(
                P[at, COLOURS.index(LABELS[label].colour)]
                + P[at, len(COLOURS) + SHAPES.index(LABELS[label].shape)]
                for at, label in enumerate(row)
            )
            return float(emitted) - CHANGE * sum(a != b for a, b in pairwise(row))

        best = max(product(range(len(LABELS)), repeat=2), key=lambda pair: value(pair, P[:2]))
        assert value(tuple(likeliest(P[:2])), P[:2]) == pytest.approx(value(best, P[:2]))
        some = max(product(labels, repeat=4), key=value)
        assert value(tuple(likeliest(P))) >= value(some) - 1e-4


def test_runs_cover_all_frames_in_order() -> None:
    assert [tuple(run) for run in runs_of([3, 3, 7, 3])] == [(3, 0, 2), (7, 2, 3), (3, 3, 4)]


# --- Models --------------------------------------------------------------------------------


def random_state(path: Path) -> Path:
    """Write random weights of a network of seven stages, one block each, and return where."""
    generator = torch.Generator().manual_seed(0)
    channels = (8, 8, 12, 12, 16, 16, 20)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.2

    def normalised(place: str, width: int) -> dict[str, torch.Tensor]:
        return {
            f"{place}.weight": normal(width).abs() + 0.5,
            f"{place}.bias": normal(width),
            f"{place}.running_mean": normal(width),
            f"{place}.running_var": normal(width).abs() + 0.5,
        }

    state = {"_conv_stem.weight": normal(8, 3, 3, 3), **normalised("_bn0", 8)}
    before = 8
    for number, after in enumerate(channels):
        place, wide = f"_blocks.{number}.", before * (2 if number else 1)
        if number:
            state[f"{place}_expand_conv.weight"] = normal(wide, before, 1, 1)
            state |= normalised(f"{place}_bn0", wide)
        state[f"{place}_depthwise_conv.weight"] = normal(wide, 1, 3, 3)
        state[f"{place}_project_conv.weight"] = normal(after, wide, 1, 1)
        state |= normalised(f"{place}_bn1", wide) | normalised(f"{place}_bn2", after)
        before = after
    state |= {"_conv_head.weight": normal(32, before, 1, 1), **normalised("_bn1", 32)}
    state |= {"_fc.weight": normal(10, 32), "_fc.bias": normal(10)}
    torch.save(state, path)
    return path


def test_a_state_of_another_network_is_refused(tmp_path: Path) -> None:
    torch.save({"_blocks.0._x": torch.zeros(1)}, tmp_path / "wrong.pth")
    with pytest.raises(InvalidInput, match="weights must be weights of EfficientNet-Lite"):
        loaded_network(tmp_path / "wrong.pth")


def test_a_network_is_read_off_random_weights_and_embeds_frames_of_any_side(
    tmp_path: Path,
) -> None:
    network = loaded_network(random_state(tmp_path / "random.pth"))
    for side in (32, 45):
        frames = generator().integers(0, 255, (2, side, side, 3)).astype(np.uint8)
        rows = embeddings(network, frames)
        assert rows.shape == (2, 32)
        assert np.isfinite(rows).all()
        assert (embeddings(network, frames[1:]) == rows[1]).all()


def test_folding_a_normalisation_in_changes_no_number(tmp_path: Path) -> None:
    state = torch.load(random_state(tmp_path / "random.pth"), weights_only=True)
    network = loaded_network(tmp_path / "random.pth")
    frame = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    plain = torch.nn.functional.conv2d(frame, state["_conv_stem.weight"], stride=2)
    mean, variance, weight, bias = (
        state[f"_bn0.{name}"] for name in ("running_mean", "running_var", "weight", "bias")
    )
    expected = torch.nn.functional.batch_norm(plain, mean, variance, weight, bias, eps=1e-3)
    stem = network.stem
    actual = torch.nn.functional.conv2d(frame, stem.kernel, stem.offset, stride=2)
    assert torch.allclose(actual, expected, atol=1e-5)


@real
def test_efficientnet_knows_a_palace() -> None:
    sklearn = pytest.importorskip("sklearn")
    photograph = Path(sklearn.__file__).parent / "datasets" / "images" / "china.jpg"
    image = cv2.imread(str(photograph))[:, 106:533, ::-1]
    image = cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA)
    network = loaded_network(LITE["lite0"].path("weights.pth"))
    matrix, offset = network.dense
    scores = torch.from_numpy(embeddings(network, image[None])) @ matrix.T + offset
    assert int(scores.argmax()) == 698  # ImageNet's palace


def test_a_small_network_learns_colours() -> None:
    # Of plain frames, black or blue; which shape they have cannot be seen.
    rng = generator()
    labels = np.stack([rng.integers(0, 2, 200), rng.integers(0, 3, 200)], axis=1)
    plain = np.array([(0, 0, 0), (0, 0, 255)], np.uint8)
    frames = np.tile(plain[labels[:, 0], None, None], (1, 32, 32, 1))
    P = by_network(train_network(frames, labels), np.tile(plain[:, None, None], (1, 32, 32, 1)))
    assert P[:, : len(COLOURS)].argmax(axis=1).tolist() == [0, 1]
    assert np.exp(P[:, : len(COLOURS)]).sum(axis=1) == pytest.approx(1, abs=1e-4)
    assert np.exp(P[:, len(COLOURS) :]).sum(axis=1) == pytest.approx(1, abs=1e-4)


@real
@pytest.mark.slow
@pytest.mark.parametrize("model", NAMES)
def test_every_model_knows_more_than_chance_of_new_pictures(model: str) -> None:
    # Chance is 1/24 for both labels of a frame. Trained where it never was, see `prepare_models`.
    rng, correct = generator(), 0
    for picture in pictures("test")[:20]:
        frame = drawn_frame(picture.pixels, Camera(noise=15, hidden=0), rng)[None]
        P = log_probabilities(shrunk(frame, 64), model)[0]
        colour = COLOURS[int(P[: len(COLOURS)].argmax())]
        shape = SHAPES[int(P[len(COLOURS) :].argmax())]
        correct += (colour, shape) == picture.labels
    assert correct >= 5


@real
def test_training_frames_are_of_pictures_that_examples_have_not() -> None:
    frames, labels = training_frames(3, 32)
    assert frames.shape == (3, 32, 32, 3)
    assert labels.shape == (3, 2)
    assert EASY_VQA.path("train/images/0.png") != EASY_VQA.path("test/images/0.png")
