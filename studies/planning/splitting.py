"""Traces of some of the inputs of another: halves at random, and by how hard they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import IndexArray

_STREAM = 2  # of a seed


def halves(trace: Trace, seed: int) -> tuple[Trace, Trace]:
    """Return the trace of one half of the inputs, drawn at random, and that of the other."""
    inputs = np.random.default_rng([seed, _STREAM]).permutation(len(trace.input_bytes))
    middle = len(inputs) // 2
    return of_inputs(trace, inputs[:middle]), of_inputs(trace, inputs[middle:])


def halves_by_feature(trace: Trace) -> tuple[IndexArray, IndexArray, str]:
    """Return the inputs of the easier half and of the harder one, and which feature splits them.

    Halves are below and above the median; the feature is the one whose halves differ most in mean
    score over all configurations. InvalidInput if inputs have none.
    """
    count = trace.features.shape[1]
    checks.require(count > 0, "trace.features", "must hold one to split inputs by", count)
    draws = trace.score.astype(float).reshape(-1, len(trace.input_bytes))  # (C D, N)
    ease = np.nanmean(draws, axis=0)  # (N,)
    orders = np.argsort(trace.features, axis=0, kind="stable")  # (N, F)
    middle = len(orders) // 2
    below, above = ease[orders[:middle]].mean(axis=0), ease[orders[middle:]].mean(axis=0)  # (F,)
    feature = int(np.argmax(np.abs(below - above)))
    halves = [orders[:middle, feature], orders[middle:, feature]]
    names = ["below", "above"]
    if below[feature] < above[feature]:
        halves, names = halves[::-1], names[::-1]
    change = f"feature {feature} from {names[0]} to {names[1]} its median"
    return halves[0], halves[1], change


def of_inputs(trace: Trace, inputs: IndexArray) -> Trace:
    """Return the trace of some of the inputs."""
    columns = trace.columns(inputs)
    return replace(
        trace,
        score=trace.score[:, columns],
        latency_s=trace.latency_s[:, :, columns],
        output_bytes=trace.output_bytes[:, :, columns],
        used=None if trace.used is None else trace.used[..., columns],
        waited_s=None if trace.waited_s is None else trace.waited_s[..., columns],
        input_bytes=trace.input_bytes[inputs],
        features=trace.features[inputs],
    )
