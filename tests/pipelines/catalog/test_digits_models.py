from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from circinus import pipelines
from circinus.pipelines.catalog.digits import models
from circinus.pipelines.catalog.digits.classifying import (
    CLASSIFIERS,
    models_version,
    stored_weights,
    user_folder,
)
from circinus.pipelines.catalog.digits.clips import training_set
from circinus.pipelines.catalog.digits.describing import SHAPES
from circinus.pipelines.catalog.digits.geometry import FloatArray, IntArray
from circinus.pipelines.catalog.digits.models import LEAST_PROBABILITY, Classifier, Weights


@pytest.fixture(scope="module")
def lesson() -> tuple[FloatArray, IntArray]:
    features, labels = training_set("pool8")
    return features[:600], labels[:600]


@pytest.fixture(scope="module")
def exam() -> tuple[FloatArray, IntArray]:
    features, labels = training_set("pool8")
    return features[1600:1700], labels[1600:1700]


class Counting:
    """A classifier that counts its trainings."""

    def __init__(self) -> None:
        self.trainings = 0

    def train(self, features: FloatArray, labels: IntArray) -> Weights:
        self.trainings += 1
        return {"mean": features.mean(axis=0), "labels": labels[:5]}

    def predict(self, weights: Weights, features: FloatArray) -> FloatArray:
        return np.zeros((len(features), 10), np.float32)

    def classifier(self) -> Classifier:
        return Classifier(train=self.train, predict=self.predict)


@pytest.mark.parametrize("torn", [b"", b"PK\x03\x04 torn", b"no archive at all"])
def test_a_torn_file_is_trained_anew(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "counted-pool8.npz").write_bytes(torn)
    counting = Counting()
    first = stored_weights(tmp_path, "counted", "pool8", counting.classifier())
    again = stored_weights(tmp_path, "counted", "pool8", counting.classifier())
    assert counting.trainings == 1
    np.testing.assert_array_equal(first["mean"], again["mean"])


def test_a_training_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail(features: FloatArray, labels: IntArray) -> Weights:
        raise ArithmeticError("diverged")

    classifier = Classifier(train=fail, predict=Counting().predict)
    with pytest.raises(ArithmeticError, match="diverged"):
        stored_weights(tmp_path, "failing", "pool8", classifier)
    assert [path.name for path in tmp_path.iterdir()] == ["failing-pool8.lock"]


def test_a_file_with_objects_is_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([{"code": "to run"}], dtype=object)
    np.savez(tmp_path / "counted-pool8.npz", mean=objects, allow_pickle=True)
    counting = Counting()
    stored_weights(tmp_path, "counted", "pool8", counting.classifier())
    assert counting.trainings == 1


def test_many_at_once_train_a_model_once(tmp_path: Path) -> None:
    counting = Counting()
    folder = tmp_path / "made" / "when needed"
    training_set("pool8")
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(stored_weights, folder, "counted", "pool8", counting.classifier())
            for _ in range(16)
        ]
        found = [job.result() for job in jobs]
    assert counting.trainings == 1
    for weights in found:
        np.testing.assert_array_equal(weights["mean"], found[0]["mean"])
    assert {path.suffix for path in folder.iterdir()} == {".npz", ".lock"}


def test_two_processes_that_prepare_at_once_leave_one_good_model(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from circinus.pipelines.catalog.digits.classifying import CLASSIFIERS
from circinus.pipelines.catalog.digits.classifying import stored_weights
weights = stored_weights(Path({str(tmp_path)!r}), "logreg", "pool8", CLASSIFIERS["logreg"])
print(float(abs(weights["matrix0"]).sum()))
"""
    root = Path(pipelines.__file__).parents[1]
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1] != ""


def test_the_store_of_the_user_is_outside_the_project_and_named_by_version() -> None:
    folder = user_folder()
    assert folder.name == models_version()
    assert Path(pipelines.__file__).parents[1] not in folder.parents


@pytest.mark.parametrize("model", ["tree", "logreg", "knn", "mlp", "svm"])
def test_stored_models_predict_as_freshly_trained_ones(tmp_path: Path, model: str) -> None:
    check_stored(tmp_path, model, "pool8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("model", CLASSIFIERS)
def test_all_stored_models_predict_as_freshly_trained_ones(
    tmp_path: Path, model: str, kind: str
) -> None:
    check_stored(tmp_path, model, kind)


def check_stored(folder: Path, model: str, kind: str) -> None:
    classifier = CLASSIFIERS[model]
    features = training_set(kind)[0][::40]
    fresh = classifier.predict(stored_weights(folder, model, kind, classifier), features)
    kept = stored_weights(user_folder(), model, kind, classifier)
    stored = classifier.predict(kept, features)
    np.testing.assert_allclose(fresh, stored, atol=1e-3)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_training_is_repeatable_and_learns(
    model: str, lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    classifier = CLASSIFIERS[model]
    first, again = (classifier.predict(classifier.train(*lesson), exam[0]) for _ in range(2))
    np.testing.assert_allclose(first, again, atol=1e-5)
    # Guessing reads a tenth; a tree from 600 noisy samples reads about 4 in 10.
    assert (first.argmax(axis=1) == exam[1]).mean() > 0.3


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_no_class_is_ruled_out(
    model: str, lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    classifier = CLASSIFIERS[model]
    logs = classifier.predict(classifier.train(*lesson), exam[0])
    assert logs.min() >= np.log(LEAST_PROBABILITY) - 1e-5
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, atol=1e-4)


def mixed(probabilities: FloatArray) -> FloatArray:
    return np.asarray(np.log(probabilities * (1 - 10 * LEAST_PROBABILITY) + LEAST_PROBABILITY))


def test_logistic_regression_predicts_as_scikit_learn(
    lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    model = LogisticRegression(C=0.02, max_iter=200).fit(*lesson)
    classifier = CLASSIFIERS["logreg"]
    got = classifier.predict(classifier.train(*lesson), exam[0])
    np.testing.assert_allclose(got, mixed(model.predict_proba(exam[0])), atol=1e-3)


def test_the_perceptron_predicts_as_scikit_learn(
    lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    model = MLPClassifier(
        (models.HIDDEN,), alpha=0.1, early_stopping=True, n_iter_no_change=3, random_state=0
    ).fit(*lesson)
    classifier = CLASSIFIERS["mlp"]
    got = classifier.predict(classifier.train(*lesson), exam[0])
    np.testing.assert_allclose(got, mixed(model.predict_proba(exam[0])), atol=1e-3)


def test_neighbours_are_those_of_scikit_learn(
    lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    model = KNeighborsClassifier(9, algorithm="brute").fit(*lesson)
    classifier = CLASSIFIERS["knn"]
    got = classifier.predict(classifier.train(*lesson), exam[0])
    np.testing.assert_allclose(got, mixed(model.predict_proba(exam[0])), atol=1e-5)


@pytest.mark.parametrize("name", ["tree", "rf100"])
def test_trees_are_walked_as_scikit_learn_walks_them(
    name: str, lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    model = {
        "tree": DecisionTreeClassifier(min_samples_leaf=8, random_state=0),
        "rf100": RandomForestClassifier(100, min_samples_leaf=2, random_state=0),
    }[name].fit(*lesson)
    classifier = CLASSIFIERS[name]
    got = classifier.predict(classifier.train(*lesson), exam[0])
    np.testing.assert_allclose(got, mixed(model.predict_proba(exam[0])), atol=1e-4)


def test_machines_of_pairs_decide_as_scikit_learn(
    lesson: tuple[FloatArray, IntArray], exam: tuple[FloatArray, IntArray]
) -> None:
    weights = CLASSIFIERS["svm"].train(*lesson)
    gamma = float(weights["gamma"])
    model = SVC(C=3.0, gamma=gamma, decision_function_shape="ovo").fit(*lesson)
    vectors, coefficients, offsets = (
        weights[name].astype(float) for name in ("vectors", "coefficients", "offsets")
    )
    distances = np.square(exam[0][:, None] - vectors[None]).sum(axis=2)
    got = np.exp(-gamma * distances) @ coefficients + offsets
    np.testing.assert_allclose(got, model.decision_function(exam[0]), atol=1e-3)
    read = CLASSIFIERS["svm"].predict(weights, exam[0]).argmax(axis=1)
    # Adding up how surely pairs are won is not counting wins: they differ on a few close calls.
    assert (read == model.predict(exam[0])).mean() > 0.85
