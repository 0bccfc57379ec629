"""Classifiers of digits: what a trained one is, and how seven kinds are trained and used.

    tree    one decision tree
    logreg  multinomial logistic regression
    knn     share of each class among the 9 nearest samples, by Euclidean distance
    svm     a support vector machine with a Gaussian kernel per pair of classes
    rf100   the mean of a hundred randomised trees
    mlp     dense layers, one hidden one of 64 units
    cnn     twice 3 x 3 convolution, ReLU, halving by maxima; a dense layer, in torch

A model is arrays only: its file is read without running code from it. torch is imported inside the
functions, so that a process that runs no `cnn` starts fast.

Notation of `svm`: `K(a, b) = exp(-gamma |a - b|^2)`; `d_ij(x) = sum_s w_s,ij K(x, s) + b_ij` is
positive where the machine of the pair i < j picks i. A class's score is the sum over its pairs of
the log-probability `log sigmoid(SLOPE d)` that it wins: a product of experts, simpler than
pairwise coupling (Wu, Lin and Weng 2004), which needs an iteration. Nodes of all trees stand in
one table; `feature < 0` marks a leaf, whose children are itself, so that a walk of `depth` steps
ends in a leaf whatever its length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from circinus.pipelines.catalog.digits.geometry import CLASSES, FloatArray, IntArray
from circinus.pipelines.catalog.training import NetworkTraining, one_thread, trained_network

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier


from typing import TYPE_CHECKING

from circinus.pipelines.catalog.digits.describing import SHAPES, kind_of

if TYPE_CHECKING:
    import torch

Weights: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

TRAINED_BY_SEED = 0  # seed of whatever a training algorithm draws
LEAST_PROBABILITY = 1e-3
"""A class that a model rules out keeps this much: one frame must not silence the others."""


def floats(weights: Weights, name: str) -> FloatArray:
    """Return the array of that name, as numbers to calculate with."""
    return weights[name].astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A kind of model."""

    # `train(features, labels) -> weights`; features (n_samples, n_features), labels (n_samples,)
    # with each of the ten classes among them. Equal input, equal weights
    train: Callable[[FloatArray, IntArray], Weights]
    # `predict(weights, features) -> log-probabilities`, (n_samples, 10) float32
    predict: Callable[[Weights, FloatArray], FloatArray]


def log_of(probabilities: npt.NDArray[np.floating]) -> FloatArray:  # (n_samples, n_classes) both
    """Log-probabilities, with `LEAST_PROBABILITY` mixed in."""
    mixed = probabilities * (1 - CLASSES * LEAST_PROBABILITY) + LEAST_PROBABILITY
    return np.asarray(np.log(mixed), dtype=np.float32)


HIDDEN = 64


def _train_logistic(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.02, max_iter=200).fit(features, labels)
    return _layers([model.coef_.T], [model.intercept_])


def _train_perceptron(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        (HIDDEN,),
        alpha=0.1,
        early_stopping=True,  # on a tenth of the samples; also ends without a warning
        n_iter_no_change=3,
        max_iter=60,
        random_state=TRAINED_BY_SEED,
    ).fit(features, labels)
    return _layers(model.coefs_, model.intercepts_)


def _layers(
    matrices: Sequence[npt.NDArray[np.floating]], offsets: Sequence[npt.NDArray[np.floating]]
) -> Weights:
    layers = enumerate(zip(matrices, offsets, strict=True))
    return {
        name: np.ascontiguousarray(value, dtype=np.float32)
        for number, pair in layers
        for name, value in zip((f"matrix{number}", f"offset{number}"), pair, strict=True)
    }


def _predict_layers(weights: Weights, features: FloatArray) -> FloatArray:
    values = features
    depth = len(weights) // 2
    for number in range(depth):
        values = values @ floats(weights, f"matrix{number}") + floats(weights, f"offset{number}")
        if number < depth - 1:
            values = np.maximum(values, 0)
    return log_of(softmax(values, axis=1))


NEIGHBOURS = 9


def _train_neighbours(features: FloatArray, labels: IntArray) -> Weights:
    half_norms = np.square(features).sum(axis=1) / 2
    return {"samples": features, "labels": labels, "half_norms": half_norms}


def _predict_neighbours(weights: Weights, features: FloatArray) -> FloatArray:
    # |a - b|^2 / 2 = |a|^2 / 2 - a.b + |b|^2 / 2; the first term is equal for all samples
    distances = floats(weights, "half_norms") - features @ floats(weights, "samples").T
    nearest = np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    votes = weights["labels"][nearest]  # (n_samples, NEIGHBOURS)
    counts = (votes[:, :, None] == np.arange(CLASSES)).sum(axis=1)
    return log_of(counts / NEIGHBOURS)


PENALTY = 3.0
SLOPE = 3.0
PAIRS = np.array(list(combinations(range(CLASSES), 2)))  # (n_pairs, 2)


def _train_machine(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.svm import SVC

    gamma = 1.0 / (features.shape[1] * features.var())
    model = SVC(C=PENALTY, gamma=gamma).fit(features, labels)
    vectors = model.support_vectors_.astype(np.float32)
    return {
        "vectors": vectors,
        "half_norms": np.square(vectors).sum(axis=1) / 2,
        "coefficients": _per_pair(model.dual_coef_, model.n_support_).astype(np.float32),
        "offsets": model.intercept_.astype(np.float32),
        "gamma": np.array(gamma, dtype=np.float32),
    }


def _per_pair(
    dual: np.ndarray[tuple[int, int], np.dtype[np.float64]],  # (CLASSES - 1, n_vectors)
    counts: np.ndarray[tuple[int], np.dtype[np.int32]],  # (CLASSES,)
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:  # (n_vectors, n_pairs)
    """Libsvm's coefficients, spread out: a vector of class c has one for each other class."""
    ends = np.cumsum(counts)
    spread = np.zeros((dual.shape[1], len(PAIRS)))
    for pair, (i, j) in enumerate(PAIRS):
        of_i, of_j = (slice(ends[c] - counts[c], ends[c]) for c in (i, j))
        spread[of_i, pair] = dual[j - 1, of_i]
        spread[of_j, pair] = dual[i, of_j]
    return spread


def _predict_machine(weights: Weights, features: FloatArray) -> FloatArray:
    vectors, gamma = floats(weights, "vectors"), float(floats(weights, "gamma"))
    half_norms = np.square(features).sum(axis=1, keepdims=True) / 2
    half_distances = half_norms + floats(weights, "half_norms") - features @ vectors.T
    kernel = np.exp(-2 * gamma * half_distances)  # (n_samples, n_vectors)
    decisions = kernel @ floats(weights, "coefficients") + floats(weights, "offsets")
    scores = np.zeros((len(features), CLASSES), dtype=np.float32)
    for pair, (i, j) in enumerate(PAIRS):
        scores[:, i] -= np.logaddexp(0, -SLOPE * decisions[:, pair])
        scores[:, j] -= np.logaddexp(0, SLOPE * decisions[:, pair])
    return log_of(softmax(scores, axis=1))


TREES = 100


def _train_tree(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(min_samples_leaf=8, random_state=TRAINED_BY_SEED)
    return _table([model.fit(features, labels)])


def _train_forest(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(TREES, min_samples_leaf=2, random_state=TRAINED_BY_SEED)
    return _table(model.fit(features, labels).estimators_)


def _table(models: Sequence[DecisionTreeClassifier]) -> Weights:
    trees = [model.tree_ for model in models]
    roots = np.cumsum([0] + [tree.node_count for tree in trees[:-1]])
    children = []  # of each tree, (n_nodes, 2)
    for root, tree in zip(roots, trees, strict=True):
        own, sides = np.arange(tree.node_count), (tree.children_left, tree.children_right)
        children.append(root + np.stack([np.where(s < 0, own, s) for s in sides], axis=1))
    values = np.concatenate([tree.value[:, 0] for tree in trees])
    return {
        "roots": roots.astype(np.int32),
        "depth": np.array(max(tree.max_depth for tree in trees)),
        "feature": np.concatenate([tree.feature for tree in trees]).astype(np.int32),
        "threshold": np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
        "children": np.concatenate(children).astype(np.int32),
        "probabilities": (values / values.sum(axis=1, keepdims=True)).astype(np.float32),
    }


def _predict_trees(weights: Weights, features: FloatArray) -> FloatArray:
    feature, threshold, children = (weights[k] for k in ("feature", "threshold", "children"))
    rows = np.arange(len(features))[:, None]
    nodes = np.tile(weights["roots"], (len(features), 1))  # (n_samples, n_trees)
    for _ in range(int(weights["depth"])):
        to_the_right = features[rows, feature[nodes]] > threshold[nodes]
        nodes = children[nodes, to_the_right.astype(np.intp)]
    return log_of(weights["probabilities"][nodes].mean(axis=1))


NUMPY_CLASSIFIERS: Mapping[str, Classifier] = {
    "tree": Classifier(train=_train_tree, predict=_predict_trees),
    "logreg": Classifier(train=_train_logistic, predict=_predict_layers),
    "knn": Classifier(train=_train_neighbours, predict=_predict_neighbours),
    "svm": Classifier(train=_train_machine, predict=_predict_machine),
    "rf100": Classifier(train=_train_forest, predict=_predict_trees),
    "mlp": Classifier(train=_train_perceptron, predict=_predict_layers),
}


CHANNELS = (16, 32)
_TRAINING = NetworkTraining(epochs=10, batch=64, learning_rate=2e-3, weight_decay=1e-4)


def _train(features: FloatArray, labels: IntArray) -> Weights:
    import torch

    samples, targets = torch.from_numpy(features), torch.from_numpy(labels)
    shape = SHAPES[kind_of(features.shape[1])]

    def loss(network: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        scores = network(samples[rows].reshape(-1, *shape))
        return torch.nn.functional.cross_entropy(scores, targets[rows])

    return trained_network(lambda: _network(features.shape[1]), loss, len(samples), _TRAINING)


def _network(n_features: int) -> torch.nn.Sequential:
    from torch import nn

    channels, height, width = SHAPES[kind_of(n_features)]
    first, second = CHANNELS
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), CLASSES),
    )


def _predict(weights: Weights, features: FloatArray) -> FloatArray:
    """Return the network of `_network`, run from its weights without building modules."""
    import torch
    from torch.nn import functional

    one_thread()
    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    with torch.inference_mode():
        # A copy: what operators get is read-only, and torch warns of memory it could write.
        values = torch.from_numpy(np.array(features, order="C"))
        values = values.reshape(-1, *SHAPES[kind_of(features.shape[1])])
        for layer in ("0", "3"):
            kernel, offset = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
            values = functional.conv2d(values, kernel, offset, padding=1).relu()
            values = functional.max_pool2d(values, 2)
        scores = functional.linear(values.flatten(1), tensors["7.weight"], tensors["7.bias"])
    return log_of(softmax(scores.numpy(), axis=1))


CONVOLUTIONAL_NETWORK = Classifier(train=_train, predict=_predict)
