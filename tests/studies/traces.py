"""A trace of a chain of two operators, which takes no time to make."""

from pathlib import Path

import numpy as np

from circinus.pipelines.io.trace import Trace, save_trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from tests.oracles.synthetic import chain


def chain_trace() -> Trace:
    """Return 12 configurations on 60 inputs; what is slower is more accurate."""
    graph = chain(3, 4)
    space = ConfigurationSpace(graph)
    knobs = space.indices(list(range(space.size)))
    rng = np.random.default_rng(0)
    accuracy = 0.3 + 0.15 * knobs[:, 0] + 0.1 * knobs[:, 1]
    seconds = np.stack([0.01 * (1 + knobs[:, 0]), 0.01 * (1 + knobs[:, 1])], axis=1)
    return Trace(
        graph=graph,
        configurations=knobs.astype(np.int16),
        score=(rng.random((12, 60)) < accuracy[:, None]).astype(np.float32),
        latency_s=np.repeat(seconds[:, :, None], 60, axis=2).astype(np.float32),
        output_bytes=np.ones((12, 2, 60), np.float32),
        input_bytes=np.ones(60, np.float32),
        features=np.zeros((60, 0), np.float32),
    )


def saved_trace(folder: Path) -> Path:
    """Return the folder of the trace, written there."""
    save_trace(chain_trace(), folder)
    return folder
