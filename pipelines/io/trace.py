"""A measured trace of a pipeline: a profile of every configuration, stored as two files.

The format is described in `docs/architecture.md`, section "Trace". `pipeline.yaml`
names the operators and knobs, `trace.npz` holds the arrays.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt
import yaml

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import opened, read_array, read_file
from circinus.pipelines.io.strict import LARGEST_FILE_BYTES, parse_safely
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.endpoints import EndpointCall
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec, Scaling
from circinus.pipelines.model.profile import USAGE_FIELDS

FloatArray = npt.NDArray[np.float32]
Part = TypeVar("Part", dict[Any, Any], list[Any])

_MOST_BYTES = 2**31  # of an array
_TORN = (OSError, KeyError, ValueError, BadZipFile, zlib.error, NotImplementedError, RuntimeError)
_ARRAYS = ("configurations", "score", "latency_s", "output_bytes", "input_bytes", "features")
_OPTIONAL = ("used", "waited_s")  # `used` only where something was called


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What was measured of all C configurations on N inputs: O operators, K knobs, F features.

    There are M = D N measurements of a configuration: D draws of each input where an operator
    draws, else one. Draw d of input n is in column d N + n.
    """

    graph: PipelineGraph  # the pipeline; arrays follow its order of operators and knobs
    configurations: npt.NDArray[np.int16]  # index of the value of each knob, int16, shape (C, K)
    score: FloatArray  # metric, in [0, 1], NaN where measuring failed, shape (C, M)
    latency_s: FloatArray  # seconds on the reference machine, alone, shape (C, O, M)
    output_bytes: FloatArray  # what an operator hands on, shape (C, O, M)
    input_bytes: FloatArray  # size of an input, shape (N,)
    features: FloatArray  # features of an input, shape (N, F)
    # what an operator used of endpoints, a row per field of `Usage`, shape (C, O, len(Usage), M);
    # None: nothing was called
    used: FloatArray | None = None
    # of `latency_s`, in which operators did not compute, shape (C, O, M); None: none are known
    waited_s: FloatArray | None = None

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_values(self)
        _check_prefixes(self)
        _check_draws(self)

    @property
    def draws(self) -> int:
        """How many draws of each input it holds, D."""
        columns = self.score.shape[1] if self.score.ndim == 2 else 0
        return max(columns // max(len(self.input_bytes), 1), 1)

    def columns(self, inputs: IndexArray) -> IndexArray:  # (n,) -> (D n,)
        """Return the rows of measurements of inputs: first draws, then second ones."""
        first = np.arange(self.draws)[:, None] * len(self.input_bytes)
        return np.asarray((first + inputs).reshape(-1))


def save_trace(trace: Trace, folder: Path) -> None:
    """Write `pipeline.yaml` and `trace.npz` into `folder`, making it when it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(graph_to_dict(trace.graph), sort_keys=False, allow_unicode=True)
    (folder / "pipeline.yaml").write_text(text, encoding="utf-8")
    arrays = {name: getattr(trace, name) for name in _ARRAYS}
    optional = {name: getattr(trace, name) for name in _OPTIONAL}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    np.savez_compressed(folder / "trace.npz", **arrays)


def load_trace(folder: Path) -> Trace:
    """Return the trace in `folder`.

    InvalidInput if a file is missing or torn, shapes disagree, a score is outside [0, 1], or an
    operator's seconds depend on knobs that are not upstream of it, or on the draw though neither
    it nor an ancestor draws.
    """
    described = read_file(folder / "pipeline.yaml", "trace", LARGEST_FILE_BYTES)
    graph = graph_from_dict(parse_safely(described, field="pipeline.yaml"))
    with opened(folder / "trace.npz", "trace") as file:
        return Trace(graph=graph, **_arrays(file, folder))


def _arrays(file: BinaryIO, folder: Path) -> dict[str, Any]:
    """Return the arrays of a `trace.npz`, none of which is larger than its file states."""
    arrays = {}
    try:
        with ZipFile(file) as archive:
            there = [name for name in _OPTIONAL if f"{name}.npy" in archive.namelist()]
            for name in (*_ARRAYS, *there):
                entry = archive.getinfo(f"{name}.npy")
                if entry.file_size > _MOST_BYTES:
                    raise ValueError(f"{name} must have at most {_MOST_BYTES} bytes")
                with archive.open(entry) as member:
                    arrays[name] = read_array(cast("BinaryIO", member), entry.file_size)
    except (*_TORN, MemoryError) as error:
        rule = f"must be a readable trace ({error})"
        raise InvalidInput.of("trace", rule, str(folder)) from error
    return arrays


def runs_of(trace: Trace, operator: int) -> tuple[IndexArray, IndexArray]:  # (runs,), (C,)
    """Return the first configuration of every run of equal upstream knobs, and the run of each."""
    keys = np.ascontiguousarray(trace.configurations[:, trace.graph.upstream_knobs[operator]])
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, group.reshape(-1)


def graph_to_dict(graph: PipelineGraph) -> dict[str, object]:
    """Return the form of a pipeline in `pipeline.yaml`."""
    return {
        "name": graph.name,
        "metric": graph.metric,
        "unit": graph.unit,
        "operators": [_operator_to_dict(operator) for operator in graph.operators],
    }


def graph_from_dict(document: object) -> PipelineGraph:
    """Return the pipeline that `pipeline.yaml` describes; InvalidInput if it is wrong."""
    top = _part("pipeline", document, dict)
    operators = _part("pipeline.operators", top.get("operators"), list)
    graph = PipelineGraph(
        name=str(top.get("name")),
        metric=str(top.get("metric", "score")),
        unit=str(top.get("unit", "1")),
        operators=tuple(_operator_from_dict(operator) for operator in operators),
    )
    names = [operator.name for operator in graph.operators]
    listed = [_part("operator", operator, dict).get("name") for operator in operators]
    checks.require(names == listed, "pipeline.operators", "must be in topological order", listed)
    return graph


def _operator_to_dict(operator: OperatorSpec) -> dict[str, object]:
    document: dict[str, object] = {
        "name": operator.name,
        "after": list(operator.after),
        "scaling": operator.scaling.value,
        "knobs": {knob.name: list(knob.values) for knob in operator.knobs},
        "ordered": {knob.name: bool(knob.ordered) for knob in operator.knobs},
    }
    if shared := {knob.name: knob.shared for knob in operator.knobs if knob.shared}:
        document["shared"] = shared
    if operator.batch_latency:
        document["batch_latency"] = dict(operator.batch_latency)
    if operator.calls:
        document["calls"] = [
            {"endpoint": call.endpoint, "when": dict(call.when), "most": call.most}
            for call in operator.all_calls
        ]
    if operator.draws:
        document["draws"] = True
    if operator.network:
        document["network"] = True
    return document


def _operator_from_dict(document: object) -> OperatorSpec:
    operator = _part("operator", document, dict)
    name = str(operator.get("name"))
    knobs, ordered, shared, curve = (
        _part(f"operator {name}.{key}", operator.get(key) or {}, dict)
        for key in ("knobs", "ordered", "shared", "batch_latency")
    )
    scaling = str(operator.get("scaling", Scaling.PROPORTIONAL.value))
    rule = f"must be one of {', '.join(Scaling)}"
    checks.require(scaling in list(Scaling), f"operator {name}.scaling", rule, scaling)
    return OperatorSpec(
        name=name,
        after=tuple(map(str, _part(f"operator {name}.after", operator.get("after") or [], list))),
        knobs=tuple(
            Knob(
                name=str(knob),
                values=tuple(_part(f"knob {name}.{knob}", values, list)),
                ordered=None if ordered.get(knob) is None else bool(ordered[knob]),
                shared=str(shared.get(knob, "")),
            )
            for knob, values in knobs.items()
        ),
        scaling=Scaling(scaling),
        batch_latency={int(size): float(factor) for size, factor in curve.items()},
        calls=tuple(
            _call_from_dict(f"operator {name}.calls", call)
            for call in _part(f"operator {name}.calls", operator.get("calls") or [], list)
        ),
        draws=bool(operator.get("draws")),
        network=bool(operator.get("network")),
    )


def _call_from_dict(field: str, document: object) -> EndpointCall:
    call = _part(field, document, dict)
    when = _part(f"{field}.when", call.get("when") or {}, dict)
    most = int(call.get("most", 1))
    return EndpointCall(endpoint=str(call.get("endpoint")), when=when, most=most)


def _part(field: str, value: object, kind: type[Part]) -> Part:
    if not isinstance(value, kind):
        words = {dict: "a mapping", list: "a list"}
        raise InvalidInput.of(field, f"must be {words[kind]}", value)
    return value


def _check_shapes(trace: Trace) -> None:
    c, k = len(trace.configurations), len(trace.graph.slots)
    n, o = len(trace.input_bytes), len(trace.graph.operators)
    features = trace.features.shape[1] if trace.features.ndim == 2 else -1
    m = n * trace.draws
    shapes = ((c, k), (c, m), (c, o, m), (c, o, m), (n,), (n, features))
    for name, shape in zip(_ARRAYS, shapes, strict=True):
        actual = getattr(trace, name).shape
        checks.require(actual == shape, f"trace.{name}", f"must have shape {shape}", actual)
    optional = {"used": (c, o, USAGE_FIELDS, m), "waited_s": (c, o, m)}
    for name, shape in optional.items():
        if (array := getattr(trace, name)) is not None:
            rule = f"must have shape {shape}"
            checks.require(array.shape == shape, f"trace.{name}", rule, array.shape)


def _check_values(trace: Trace) -> None:
    for column, slot in enumerate(trace.graph.slots):
        values = trace.configurations[:, column]
        good = bool(((values >= 0) & (values < len(slot.knob.values))).all())
        rule = f"must hold indices in [0, {len(slot.knob.values)})"
        checks.require(good, f"trace.configurations of {slot.key}", rule, values)
    score = trace.score[~np.isnan(trace.score)]
    good = bool(((score >= 0) & (score <= 1)).all())
    checks.require(good, "trace.score", "must be in [0, 1] or NaN", score)
    succeeded = ~np.isnan(trace.score)[:, None, :]
    rule = "must be >= 0 where a score was measured"
    if trace.used is not None:
        good = bool(((trace.used >= 0) | ~succeeded[:, :, None, :]).all())
        checks.require(good, "trace.used", rule, trace.used)
    for name, array in _of_operators(trace):
        checks.require(bool(((array >= 0) | ~succeeded).all()), f"trace.{name}", rule, array)


def _of_operators(trace: Trace) -> list[tuple[str, FloatArray]]:
    waited = [] if trace.waited_s is None else [("waited_s", trace.waited_s)]
    return [("latency_s", trace.latency_s), ("output_bytes", trace.output_bytes), *waited]


def _check_prefixes(trace: Trace) -> None:
    """Return an operator's seconds and bytes depend on the knobs of its lineage only."""
    rule = "must depend on the knobs of the operator and its ancestors only"
    for o, operator in enumerate(trace.graph.operators):
        first, group = runs_of(trace, o)
        for name, array in _of_operators(trace):
            values, leading = array[:, o], array[first[group], o]
            bad = ~((values == leading) | np.isnan(values) | np.isnan(leading))
            where = np.argwhere(bad)[:3].tolist()
            checks.require(not bad.any(), f"trace.{name} of {operator.name}", rule, where)


def _check_draws(trace: Trace) -> None:
    """Return where nothing draws there is one draw; what comes before is equal in all draws."""
    if trace.draws == 1:
        return
    rule = "must hold one draw of each input, as no operator draws"
    checks.require(trace.graph.draws, "trace.score", rule, trace.draws)
    rule = "must be equal in all draws of an input, as neither it nor an ancestor draws"
    for o, operator in enumerate(trace.graph.operators):
        if trace.graph.drawing[o]:
            continue
        for name, array in _of_operators(trace):
            values = array[:, o].reshape(len(array), trace.draws, -1)  # (C, D, N)
            bad = ~((values == np.fmin.reduce(values, axis=1)[:, None]) | np.isnan(values))
            where = np.argwhere(bad)[:3].tolist()
            checks.require(not bad.any(), f"trace.{name} of {operator.name}", rule, where)
