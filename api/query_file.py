"""Query and infrastructure files (YAML, read strictly), and the inputs that a query names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from circinus.api.schemas.query import DataSource, QueryRequest
from circinus.api.schemas.violations import checked
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.execution.suggested import with_suggested
from circinus.pipelines.io.datasets import Dataset, load_folder, load_json_lines
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict, with_calls
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.strict import LARGEST_FILE_BYTES, parse_document
from circinus.pipelines.model.infrastructure import Infrastructure

_LEAST_USD_PER_MILLION = 0.001  # the cheapest that genai-prices lists is 0.003


def query_of(document: object) -> QueryRequest:
    """Return the query of a parsed file or body; InvalidInput with all broken rules."""
    return checked(QueryRequest, document)


def query_schema() -> dict[str, object]:
    """Return the JSON schema of the query file."""
    schema = QueryRequest.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def read_infrastructure(reference: str) -> Infrastructure:
    """Return the infrastructure of a preset or YAML file; InvalidInput with every broken rule."""
    if reference in PRESETS:
        return PRESETS[reference]
    path = Path(reference)
    if not path.is_file():
        rule = f"must be a file or one of {', '.join(PRESETS)}"
        raise InvalidInput.of("infrastructure", rule, reference)
    return infrastructure_from_dict(with_calls(read_document(path)))


def load_data(source: DataSource, pipeline: Pipeline, *, base: Path) -> Dataset:
    """Return the inputs to profile on; relative paths start from `base`, the query file's folder.

    Raises InvalidInput if the pipeline brings no examples, or a file is missing or malformed.
    """
    if source.dataset is not None:
        rule = "must be left out: data sets are the service's, which plans on them"
        raise InvalidInput.of("data.dataset", rule, source.dataset)
    if source.folder is not None:
        return load_folder(base / source.folder)
    if source.jsonl is not None:
        return load_json_lines(base / source.jsonl)
    if pipeline.examples is None:
        rule = f"must be left out: pipeline {pipeline.name} brings no data of its own"
        raise InvalidInput.of("data.examples", rule, source.examples)
    return pipeline.examples(source.examples or 0, source.seed)


def read_document(path: Path) -> dict[str, object]:
    """Return the mapping of a YAML file; InvalidInput unless it is one strict document."""
    field = f"file {path.name}"
    return parse_document(read_file(path, field, LARGEST_FILE_BYTES), field=field)


def completed(
    infrastructure: Infrastructure, pipeline: Pipeline, clock: Clock | None = None
) -> tuple[Infrastructure, tuple[str, ...]]:
    """Return the infrastructure with the endpoints of a pipeline, and notes on them.

    InvalidInput if it lacks an endpoint without a listed price.
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
