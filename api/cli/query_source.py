"""The query that a command plans: a query file, or a pipeline by name, with `--set` values.

`circinus plan rag:chain --set slo.accuracy=0.8 --set slo.latency_s=2` is the same as a file

    pipeline: rag:chain
    data: {examples: ...}      # all that the module has
    slo: {accuracy: 0.8, latency_s: 2}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from circinus.api.bootstrap.registry import pipeline_here
from circinus.api.query_file import read_document
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.strict import parse_document

_METAVAR = "FILE|MODULE:CHAIN"
_HELP = "Query file (YAML), or a pipeline or LangChain chain as module:attribute."
What = Annotated[str, Argument(metavar=_METAVAR, help=_HELP)]
MaybeWhat = Annotated[str | None, Argument(metavar=f"[{_METAVAR}]", help=_HELP)]
Sets = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="NAME=VALUE",
        help="A field of the query, slo.accuracy=0.8; goes before the file's. Repeatable.",
    ),
]
_SET_RULE = "must be NAME=VALUE, as slo.accuracy=0.8"
_SOURCES = ("examples", "folder", "jsonl", "dataset")


class QuerySource(NamedTuple):
    """A query as a file has it."""

    document: dict[str, Any]
    base: Path  # what its paths start from


def read_source(what: str, sets: Sequence[str] | None) -> QuerySource:
    """Return the query of a command; InvalidInput if there is no such file or module."""
    path = Path(what)
    if ":" in what and not path.is_file():
        source = QuerySource({"pipeline": what}, Path())
    else:
        source = QuerySource(read_document(path), path.parent)
    document: dict[str, Any] = source.document
    for text in sets or ():
        document = _with(document, text)
    return source._replace(document=_with_all_examples(document))


def _with(document: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a document with a field set; what is between is made, the rest stays."""
    name, is_set, value = text.partition("=")
    path = name.split(".")
    if not (is_set and all(path)):
        raise InvalidInput.of("--set", _SET_RULE, text)
    read = parse_document(f"value: {value}".encode(), field=f"--set {name}")["value"]
    return _at(document, path, read, name)


def _at(document: object, path: Sequence[str], value: object, name: str) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise InvalidInput.of(f"--set {name}", "must be a field of a mapping", document)
    first, *rest = path
    inner = _at(document.get(first) or {}, rest, value, name) if rest else value
    return {**document, first: inner}


def _with_all_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose data are all examples of its pipeline, if it has nothing else."""
    data, reference = document.get("data") or {}, document.get("pipeline")
    has_data = not isinstance(data, Mapping) or any(name in data for name in _SOURCES)
    if has_data or not isinstance(reference, str) or ":" not in reference:
        return document
    count = pipeline_here(reference).example_count
    return document if count is None else {**document, "data": {**data, "examples": count}}
