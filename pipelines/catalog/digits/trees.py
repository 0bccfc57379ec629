"""Classifiers `tree` and `rf100`: decision trees, walked by all samples and all trees at once.

Notation: nodes of all trees stand in one table; `feature < 0` marks a leaf, whose children are
itself, so that a walk of `depth` steps ends in a leaf whatever its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipelines.catalog.digits.geometry import FloatArray, IntArray
from pipelines.catalog.digits.weights import TRAINED_BY_SEED, Classifier, Weights, log_of

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

TREES = 100


def decision_tree() -> Classifier:
    """One tree."""
    return Classifier(train=_train_tree, predict=_predict)


def random_forest() -> Classifier:
    """The mean of a hundred randomised trees."""
    return Classifier(train=_train_forest, predict=_predict)


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
    children = [_children(tree.children_left, tree.children_right) for tree in trees]
    values = np.concatenate([tree.value[:, 0] for tree in trees])
    return {
        "roots": roots.astype(np.int32),
        "depth": np.array(max(tree.max_depth for tree in trees)),
        "feature": np.concatenate([tree.feature for tree in trees]).astype(np.int32),
        "threshold": np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
        "children": np.concatenate(
            [root + pair for root, pair in zip(roots, children, strict=True)]
        ).astype(np.int32),
        "probabilities": (values / values.sum(axis=1, keepdims=True)).astype(np.float32),
    }


def _children(left: IntArray, right: IntArray) -> IntArray:  # (n_nodes, 2)
    own = np.arange(len(left))
    return np.stack([np.where(side < 0, own, side) for side in (left, right)], axis=1)


def _predict(weights: Weights, features: FloatArray) -> FloatArray:
    feature, threshold, children = (weights[k] for k in ("feature", "threshold", "children"))
    rows = np.arange(len(features))[:, None]
    nodes = np.tile(weights["roots"], (len(features), 1))  # (n_samples, n_trees)
    for _ in range(int(weights["depth"])):
        to_the_right = features[rows, feature[nodes]] > threshold[nodes]
        nodes = children[nodes, to_the_right.astype(np.intp)]
    return log_of(weights["probabilities"][nodes].mean(axis=1))
