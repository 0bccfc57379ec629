"""Classifier `cnn`, in torch: twice 3 x 3 convolution, ReLU, halving by maxima; a dense layer.

One rule: torch is imported inside the functions, and nowhere else in the pipeline, so that a
process that runs no `cnn` starts fast. Features are taken as an image again: raw and pool8 as grey
levels, hog as one channel per orientation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from circinus.pipelines.catalog.digits.describing import SHAPES, kind_of
from circinus.pipelines.catalog.digits.geometry import CLASSES, FloatArray, IntArray
from circinus.pipelines.catalog.digits.models import TRAINED_BY_SEED, Classifier, Weights, log_of

if TYPE_CHECKING:
    import torch

CHANNELS = (16, 32)
EPOCHS = 10
BATCH = 64
LEARNING_RATE = 2e-3


def _train(features: FloatArray, labels: IntArray) -> Weights:
    import torch

    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TRAINED_BY_SEED)
        network = _network(features.shape[1])
        optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=1e-4)
        samples, targets = torch.from_numpy(features), torch.from_numpy(labels)
        for _ in range(EPOCHS):
            order = torch.randperm(len(samples))
            for rows in (order[at : at + BATCH] for at in range(0, len(order), BATCH)):
                optimiser.zero_grad()
                images = samples[rows].reshape(-1, *SHAPES[kind_of(features.shape[1])])
                loss = torch.nn.functional.cross_entropy(network(images), targets[rows])
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimiser.step()
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}


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
    """The network of `_network`, run from its weights without building modules."""
    import torch
    from torch.nn import functional

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
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
