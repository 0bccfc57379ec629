"""Traces of pipelines that do not exist, unlike the measured ones, for studies of planning.

`fan`: two branches side by side over frames; scores are 0 or 1; an input's size stretches
all operators alike. `answers`: a chain around a generator with long-tailed seconds and one
machine hiccup in two hundred; scores are fractions. Every effect is drawn from the given
generator: another seed is another pipeline of the same shape.

| symbol | meaning | shape |
| --- | --- | --- |
| C, O, N | configurations, operators, inputs | |
| q | quality of a configuration, a logit | (C,) |
| d | difficulty of an input | (N,) |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr

from pipelines import checks
from pipelines.configuration import ConfigurationSpace, IndexArray
from pipelines.graph import PipelineGraph
from pipelines.operators import Knob, KnobValue, OperatorSpec
from pipelines.profile import FloatArray
from pipelines.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a synthetic pipeline is like.

    Attributes:
        graph: Its operators and knobs.
        inputs: N.
        seconds: Of each operator at its middle setting.
        spread: Largest factor between the settings of a knob, in seconds.
        tail: Deviation of log seconds of a cell over inputs, per operator.
        size: Deviation of the log of an input's size, which stretches all operators.
        hiccup: Part of runs that take `_HICCUP` times as long.
        binary: Whether scores are 0 or 1.
        shared: Part of a score's variance that is the input's.
    """

    graph: PipelineGraph
    inputs: int
    seconds: tuple[float, ...]
    spread: float
    tail: tuple[float, ...]
    size: float
    hiccup: float
    binary: bool
    shared: float


_HICCUP = 12.0
_BYTES = 2_000.0


def synthetic(name: str, rng: np.random.Generator) -> Trace:
    """Give a trace of `fan` or `answers`.

    Raises:
        InvalidInput: If there is no shape of that name.
    """
    rule = f"must be among {', '.join(SHAPES)}"
    checks.require(name in SHAPES, "synthetic pipeline", rule, name)
    shape = SHAPES[name]()
    space = ConfigurationSpace(shape.graph)
    knobs = space.indices(list(range(space.size)))
    latency, size = _latency(shape, knobs, rng)
    return Trace(
        graph=shape.graph,
        configurations=knobs.astype(np.int16),
        score=_scores(shape, knobs, rng).astype(np.float32),
        latency_s=latency.astype(np.float32),
        output_bytes=np.full(latency.shape, _BYTES, np.float32),
        input_bytes=(10 * _BYTES * size).astype(np.float32),
        features=np.log(size)[:, None].astype(np.float32),
    )


def _scores(shape: Shape, knobs: IndexArray, rng: np.random.Generator) -> FloatArray:  # (C, N)
    q = np.zeros(len(knobs))
    for column, slot in enumerate(shape.graph.slots):
        count = len(slot.knob.values)
        effect = np.sort(rng.normal(0, 0.7, count)) if slot.knob.ordered else None
        effect = rng.normal(0, 0.7, count) if effect is None else effect
        q += (effect - effect.mean())[knobs[:, column]]
    q += _interactions(shape, knobs, rng) + 0.7
    difficulty = rng.normal(0, 1, shape.inputs)
    own = rng.normal(0, 1, (len(knobs), shape.inputs))
    noise = np.sqrt(shape.shared) * difficulty + np.sqrt(1 - shape.shared) * own
    if shape.binary:
        return np.asarray(ndtr(noise) < expit(q)[:, None], dtype=np.float64)
    return np.asarray(expit(1.5 * (q[:, None] + 1.2 * noise)))


def _interactions(shape: Shape, knobs: IndexArray, rng: np.random.Generator) -> FloatArray:  # (C,)
    """Give what neighbouring knobs do together."""
    radices = [len(slot.knob.values) for slot in shape.graph.slots]
    total = np.zeros(len(knobs))
    for k in range(len(radices) - 1):
        table = rng.normal(0, 0.25, (radices[k], radices[k + 1]))
        total += table[knobs[:, k], knobs[:, k + 1]]
    return total


def _latency(
    shape: Shape, knobs: IndexArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:  # (C, O, N), (N,)
    graph = shape.graph
    size = np.exp(rng.normal(0, shape.size, shape.inputs))
    latency = np.empty((len(knobs), len(graph.operators), shape.inputs))
    for o, operator in enumerate(graph.operators):
        upstream = {graph.operators[i].name for i in graph.lineages[o]}
        columns = [k for k, s in enumerate(graph.slots) if s.operator in upstream]
        cells, which = np.unique(knobs[:, columns], axis=0, return_inverse=True)
        log_s = np.full(len(cells), np.log(shape.seconds[o]))
        for position, column in enumerate(columns):
            slot = graph.slots[column]
            strength = 1.0 if slot.operator == operator.name else 0.2
            at = np.linspace(-0.5, 0.5, max(len(slot.knob.values), 2))
            at = at if slot.knob.ordered else rng.permutation(at)
            log_s += strength * np.log(shape.spread) * at[cells[:, position]]
        log_s += rng.normal(0, 0.1, len(cells))
        runs = rng.normal(log_s[:, None], shape.tail[o], (len(cells), shape.inputs))
        slow = rng.random(runs.shape) < shape.hiccup
        seconds = np.exp(runs) * size * np.where(slow, _HICCUP, 1.0)
        latency[:, o] = seconds[which.ravel()]
    return latency, size


def _operator(name: str, after: tuple[str, ...], **knobs: tuple[KnobValue, ...]) -> OperatorSpec:
    made = tuple(Knob(name=knob, values=values) for knob, values in knobs.items())
    return OperatorSpec(name=name, after=after, knobs=made)


def _fan() -> Shape:
    operators = (
        _operator("decode", (), fps=(1, 2, 5, 10)),
        _operator("detect", ("decode",), model=("n", "s", "m", "l"), size=(320, 480, 640)),
        _operator("transcribe", ("decode",), model=("tiny", "base", "small", "medium")),
        _operator("fuse", ("detect", "transcribe"), rule=("mean", "max", "learnt")),
    )
    return Shape(
        graph=PipelineGraph(name="fan", operators=operators),
        inputs=300,
        seconds=(0.002, 0.02, 0.03, 0.001),
        spread=12.0,
        tail=(0.1, 0.25, 0.3, 0.2),
        size=0.4,
        hiccup=0.0,
        binary=True,
        shared=0.4,
    )


def _answers() -> Shape:
    operators = (
        _operator("retrieve", (), count=(1, 3, 5, 10, 20), index=("flat", "ivf", "graph")),
        _operator("rank", ("retrieve",), model=("none", "small", "large")),
        _operator(
            "generate", ("rank",), model=("a", "b", "c", "d", "e"), tokens=(32, 64, 128, 256)
        ),
        _operator("check", ("generate",), rounds=(0, 1, 2)),
    )
    return Shape(
        graph=PipelineGraph(name="answers", operators=operators),
        inputs=200,
        seconds=(0.004, 0.01, 0.08, 0.02),
        spread=10.0,
        tail=(0.3, 0.4, 0.7, 0.5),
        size=0.2,
        hiccup=0.005,
        binary=False,
        shared=0.25,
    )


SHAPES: Mapping[str, Callable[[], Shape]] = {"fan": _fan, "answers": _answers}
