"""Data as programs have it, as examples: pairs, data frames, files, folders.

The one rule: what is wrong is told of the example that has it, by its index and field.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from circinus.api.query_file import load_data
from circinus.api.schemas.query import DataSource
from circinus.pipelines import checks
from circinus.pipelines.dataset import LARGEST_DATASET, Dataset, Example
from circinus.pipelines.errors import MOST_FAULTS, Fault, InvalidInput
from circinus.pipelines.payload import Payload, payload_bytes
from circinus.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    import pandas as pd

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
    """Return the examples; `packed` makes what operators are given of what the caller has.

    `columns` are those of a data frame with inputs and expected outputs. InvalidInput tells of
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
    examples, faults = list[Example](), list[Fault]()
    for number, row in enumerate(islice(rows, LARGEST_DATASET + 1)):
        try:
            examples.append(_example(row, packed))
        except InvalidInput as error:
            where = f"data[{number}]"
            faults += [Fault(f"{where}{f.field}", f.rule, f.value) for f in error.faults]
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InvalidInput(faults)
    return Dataset(name=data.name if isinstance(data, Dataset) else "data", examples=examples)


_Row = tuple[object, object] | Fault
"""Input and expected output, or why there are none."""


def _example(row: _Row, packed: Callable[[Any], Payload]) -> Example:
    if isinstance(row, Fault):
        raise InvalidInput([row])
    found, faults = dict[str, Payload](), list[Fault]()
    for field, value in zip(_FIELDS, row, strict=True):
        try:
            found[field] = packed(value)
            payload_bytes(found[field])
        except InvalidInput as error:
            faults += [Fault(f".{field}", f.rule, f.value) for f in error.faults]
    if faults:
        raise InvalidInput(faults)
    return Example(**found)


def _pair(each: object) -> _Row:
    if isinstance(each, Example):
        return each.input, each.expected
    if isinstance(each, Mapping) and set(each) == set(_FIELDS):
        return each["input"], each["expected"]
    if isinstance(each, tuple | list) and len(each) == 2:
        return each[0], each[1]
    return Fault.of("", _PAIR, each)


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
            yield Fault(f".{lacking}", "must be given", "an empty cell")
        else:
            yield cells[columns[0]][number], cells[columns[1]][number]
