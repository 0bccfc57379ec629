"""A query from what a program hands over: a pipeline or chain, data in any form, objectives.

The one rule: a violation names the example that has it, by index and field.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np

from circinus.api.bootstrap.registry import pipeline_here, reference_here
from circinus.api.query_file import completed, load_data, query_of, read_infrastructure
from circinus.api.schemas.query import DataSource, QueryRequest, to_query
from circinus.api.settings import Settings
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.execution.code_digest import code_digest
from circinus.pipelines.execution.metrics import SetMetric, set_metric
from circinus.pipelines.execution.pipeline import Pipeline, scored_over_set
from circinus.pipelines.io.datasets import LARGEST_DATASET, Dataset, Example, read_examples
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload, payload_bytes
from circinus.pipelines.model.query import Query

if TYPE_CHECKING:
    import pandas as pd

Plannable: TypeAlias = Any
"""A Pipeline, what names one, or what LangChain runs or makes a Runnable of."""

CHAIN = "chain"
"""The name of a chain without one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handed:
    """A pipeline as a program hands it over."""

    pipeline: Pipeline  # as it is planned
    chain: Any = None  # that it was read off; None: it was read off none
    reference: str = ""  # for other processes; empty: they cannot import it

    def packed(self, value: Any) -> Payload:  # noqa: ANN401 - whatever a chain takes
        """Return the payload of an input: the input of a chain, encoded."""
        if self.chain is None:
            payload: Payload = value
            return payload
        from circinus.pipelines.langchain.values import pack

        return pack(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalQuery:
    """A query that a program plans in its own process."""

    handed: Handed
    request: QueryRequest  # data in memory stands as the number of examples
    query: Query
    dataset: Dataset
    infrastructure: Infrastructure  # with the endpoints that the pipeline calls
    remarks: tuple[str, ...] = ()  # on these


def local_query(
    handed: Handed,
    data: Data,
    columns: tuple[str, str],
    infrastructure: str | Path | Infrastructure,
    document: Mapping[str, Any],  # the query as a file has it, but for pipeline and inputs
    settings: Settings,
) -> LocalQuery:
    """Return the query to plan; InvalidInput with every broken rule of one of its parts."""
    pipeline, source = handed.pipeline, source_of(data)
    dataset = None if source else dataset_of(data, pipeline, handed.packed, columns)
    inputs = {"examples": len(dataset)} if dataset else source.model_dump(exclude_unset=True)  # type: ignore[union-attr]  # one of both
    body = _plain({**document, "data": {**inputs, **document["data"]}})
    request = query_of({"pipeline": handed.reference or pipeline.name, **body})
    tiers = (
        infrastructure
        if isinstance(infrastructure, Infrastructure)
        else read_infrastructure(str(infrastructure))
    )
    tiers, remarks = completed(tiers, pipeline)
    return LocalQuery(
        handed=handed,
        request=request,
        query=to_query(request, pipeline=pipeline.name, method=settings.chosen_method),
        dataset=dataset or dataset_of(data, pipeline, handed.packed),
        infrastructure=tiers,
        remarks=remarks,
    )


Scored: TypeAlias = Callable[..., float] | SetMetric | str | Mapping[str, Any]
"""A metric: of single outputs a function, of all together a `SetMetric` or what names one."""


def handed_over(
    pipeline_or_chain: Plannable,
    score: Scored | None,
    choices: Mapping[str, Sequence[KnobValue]] | None,
    name: str | None,
) -> Handed:
    """Return the pipeline of a program's argument.

    InvalidInput if there is no such pipeline, this machine lacks what it needs, it is no chain, a
    chain has no score, or a pipeline, which has score, choices and name by itself, has another
    one passed, but for a metric over the set.
    """
    if isinstance(score, str | Mapping):
        score = set_metric(score, "score")
    if not isinstance(pipeline_or_chain, str | Pipeline):
        return _chain(pipeline_or_chain, score, choices or {}, name or CHAIN)
    over_set = score if isinstance(score, SetMetric) else None
    single = score if over_set is None else None
    for field, value in (("score", single), ("choices", choices), ("name", name)):
        rule = "must be left out: the pipeline says it, a chain does not"
        checks.require(value is None, field, rule, value)
    if isinstance(pipeline_or_chain, str):
        reference, pipeline = reference_here(pipeline_or_chain), pipeline_here(pipeline_or_chain)
    else:
        reference, pipeline = "", pipeline_or_chain
        pipeline.require_available()
    return Handed(pipeline=scored_over_set(pipeline, over_set, "score"), reference=reference)


def _chain(
    chain: Plannable,
    score: Callable[..., float] | SetMetric | None,
    choices: Mapping[str, Sequence[KnobValue]],
    name: str,
) -> Handed:
    # LangChain takes long to import: who plans a pipeline need not wait for it.
    from circinus.pipelines.langchain import Reading, pipeline_from_runnable

    if not callable(score) and not isinstance(score, SetMetric):
        raise InvalidInput.of("score", "must be a function (output, expected) of a chain", score)
    # Chains edited in a notebook have no versions: what was measured of it before, or
    # by another score, is another pipeline's.
    version = code_digest(chain, score)
    reading = Reading(name=name, score=score, choices=choices, version=version)
    return Handed(pipeline=pipeline_from_runnable(chain, reading), chain=chain)


def _plain(tree: object) -> Any:  # noqa: ANN401 - a tree of whatever is in it
    """Return a tree with Python's own mappings, lists and numbers, as strict schemas take them."""
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return [_plain(value) for value in tree]
    return tree.item() if isinstance(tree, np.generic) else tree


Data: TypeAlias = Union[Dataset, Iterable[Any], "pd.DataFrame", str, PathLike[str], int]
"""Examples in memory, the path of a file of JSON lines or of a folder, or how many examples the
pipeline shall make."""

_FIELDS = ("input", "expected")
_KINDS = (
    "must be pairs (input, expected), a data frame, a data set, the path of a file of JSON lines "
    "or of a folder, or a number of examples"
)
_PAIR = "must be a pair (input, expected), an Example, or a mapping of input and expected"


def source_of(data: Data) -> DataSource | None:
    """Return where examples are to be loaded from; None: they are in memory."""
    if isinstance(data, bool):
        raise InvalidInput.of("data", _KINDS, data)
    if isinstance(data, int):
        rule = f"must be 1 to {LARGEST_DATASET} examples"
        checks.require(1 <= data <= LARGEST_DATASET, "data", rule, data)
        return DataSource(examples=data)
    if not isinstance(data, str | PathLike):
        return None
    path = Path(data)
    if path.is_dir():
        return DataSource(folder=str(path))
    rule = "must be the path of a file of JSON lines, or of a folder"
    checks.require(path.is_file(), "data", rule, str(data))
    return DataSource(jsonl=str(path))


def dataset_of(
    data: Data,
    pipeline: Pipeline,
    packed: Callable[[Any], Payload],
    columns: tuple[str, str] = _FIELDS,
) -> Dataset:
    """Return the examples; `packed` makes payloads of the caller's inputs.

    `columns` are those of a data frame with inputs and expected outputs. InvalidInput names
    every faulty example, the first ones if there are many.
    """
    source = source_of(data)
    if source is not None:
        return load_data(source, pipeline, base=Path())
    rows: Iterator[_Row]
    if _is_frame(data):
        rows = _rows(data, columns)
    elif isinstance(data, Dataset):
        rows = map(_pair, data.examples)
    elif isinstance(data, Iterable) and not isinstance(data, Mapping | bytes):
        rows = map(_pair, data)
    else:
        raise InvalidInput.of("data", _KINDS, type(data).__name__)
    places = ((f"data[{n}]", row) for n, row in enumerate(islice(rows, LARGEST_DATASET + 1)))
    examples = read_examples(places, partial(_example, packed=packed))
    return Dataset(name=data.name if isinstance(data, Dataset) else "data", examples=examples)


_Row = tuple[object, object] | Violation
"""Input and expected output, or why there are none."""


def _example(row: _Row, packed: Callable[[Any], Payload]) -> Example:
    if isinstance(row, Violation):
        raise InvalidInput([row])
    fields, violations = dict[str, Payload](), list[Violation]()
    for field, value in zip(_FIELDS, row, strict=True):
        try:
            fields[field] = packed(value)
            payload_bytes(fields[field])
        except InvalidInput as error:
            violations += [Violation(f".{field}", f.rule, f.value) for f in error.violations]
    if violations:
        raise InvalidInput(violations)
    return Example(**fields)


def _pair(each: object) -> _Row:
    if isinstance(each, Example):
        return each.input, each.expected
    if isinstance(each, Mapping) and set(each) == set(_FIELDS):
        return each["input"], each["expected"]
    if isinstance(each, tuple | list) and len(each) == 2:
        return each[0], each[1]
    return Violation.of("", _PAIR, each)


def _is_frame(data: object) -> bool:
    pandas = sys.modules.get("pandas")  # who has a frame has imported it
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _rows(frame: Any, columns: tuple[str, str]) -> Iterator[_Row]:  # noqa: ANN401 - pandas' own
    known = ", ".join(map(str, frame.columns))
    for column in columns:
        rule = f"must name a column of the data frame ({known})"
        checks.require(column in frame.columns, "columns", rule, column)
    missing = {c: frame[c].isna().tolist() for c in columns}
    cells = {c: frame[c].tolist() for c in columns}  # as Python's own numbers
    for number in range(len(frame)):
        lacking = next((c for c in columns if missing[c][number]), None)
        if lacking is not None:
            yield Violation(f".{lacking}", "must be given", "an empty cell")
        else:
            yield cells[columns[0]][number], cells[columns[1]][number]
