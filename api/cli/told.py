"""What a command is told to plan: a query file, or a pipeline by name, and what is set beside.

`circinus plan rag:chain --set slo.accuracy=0.8 --set slo.latency_s=2` is the same as a file

    pipeline: rag:chain
    data: {examples: ...}      # all that the module has
    slo: {accuracy: 0.8, latency_s: 2}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from circinus.api.cli import options
from circinus.api.query_file import read_document
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.strict_yaml import parse_document
from circinus.pipelines.suggested import with_suggested

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
_LEAST_USD_PER_MILLION = 0.001  # the cheapest that genai-prices lists is 0.003
_SOURCES = ("examples", "folder", "jsonl", "dataset")


class Told(NamedTuple):
    """A query as a file has it."""

    document: dict[str, Any]
    base: Path  # what its paths start from


def query_told(what: str, sets: Sequence[str] | None) -> Told:
    """Return the query that a command is told; InvalidInput if there is no such file or module."""
    path = Path(what)
    if ":" in what and not path.is_file():
        found = Told({"pipeline": what}, Path())
    else:
        found = Told(read_document(path), path.parent)
    document: dict[str, Any] = found.document
    for text in sets or ():
        document = _with(document, text)
    return found._replace(document=_with_all_examples(document))


def completed(
    infrastructure: Infrastructure, pipeline: Pipeline, clock: Clock | None = None
) -> tuple[Infrastructure, tuple[str, ...]]:
    """Return the infrastructure with what a pipeline calls, and what is to be told of it.

    InvalidInput if it lacks an endpoint whose price nobody lists, see `pipelines.suggested`.
    """
    called = [name for operator in pipeline.graph.operators for name in operator.endpoints]
    today = datetime.fromtimestamp((clock or SystemClock()).timestamp(), UTC).date().isoformat()
    whole, notes = with_suggested(infrastructure, called, pipeline.suggested, today)
    return whole, (*notes, *_odd_prices(whole))


def _odd_prices(infrastructure: Infrastructure) -> list[str]:
    """Return what looks like a slip in prices: one left out beside others, one of a token."""
    shared = [tier for tier in infrastructure.tiers if not (tier.dedicated or tier.endpoints)]
    priced = any(tier.price_usd_per_hour for tier in shared)
    free = [tier.name for tier in shared if not tier.price_usd_per_hour and priced]
    small = [
        f"endpoint {one.name}: {name} is {value:g} a million, below any listed price: it must be "
        "per million tokens, not per token"
        for tier in infrastructure.tiers
        for one in tier.endpoints
        for name in ("input_usd_per_million", "output_usd_per_million")
        if 0 < (value := getattr(one.price, name)) < _LEAST_USD_PER_MILLION
    ]
    words = "price_usd_per_hour is 0 or left out (default 0), so plans there cost nothing"
    return [*(f"tier {name}: {words}" for name in free), *small]


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
    is_told = not isinstance(data, Mapping) or any(name in data for name in _SOURCES)
    if is_told or not isinstance(reference, str) or ":" not in reference:
        return document
    count = options.pipeline_here(reference).example_count
    return document if count is None else {**document, "data": {**data, "examples": count}}
