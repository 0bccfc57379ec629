"""A query in any of the forms in which a client takes it, as the request that is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from circinus.api.query_file import query_of, read_document
from circinus.api.schemas.query import DataSource, QueryRequest, SloRequest

_DATASET = re.compile(r"d-[0-9a-f]{32}")

QueryInput: TypeAlias = QueryRequest | Mapping[str, object] | str | PathLike[str]
"""A query: as it is, as a document, or the path of its file."""


class QueryFields(TypedDict, total=False):
    """Fields of a query, those of its objectives beside the others; see `QueryRequest`."""

    pipeline: str
    data: int | str | PathLike[str] | DataSource | Mapping[str, object]
    """How many examples of the pipeline, a file of JSON lines or a folder, or the id of a data set
    that was handed over."""
    accuracy: float
    latency_s: float
    latency_statistic: str
    cost_usd_per_hour: float
    cost_usd_per_1000_requests: float
    throughput_per_s: float
    holds_for: str
    request_rate_per_s: float
    weight: float
    priority: int
    tenant: str
    duration_s: float
    limits: Mapping[str, object]
    seed: int
    restrictions: Mapping[str, object]
    device: Mapping[str, object]
    cold: bool
    planning: Mapping[str, object]


def read_query(query: QueryInput | None, fields: Mapping[str, Any]) -> tuple[QueryRequest, Path]:
    """Return the request, and the folder where paths of its data start."""
    base, document = Path(), {}
    if isinstance(query, QueryRequest):
        if not fields:
            return query, base
        document = query.model_dump(mode="json", exclude_unset=True)
    elif isinstance(query, Mapping):
        document = dict(query)
    elif query is not None:
        base, document = Path(query).parent, read_document(Path(query))
    slo = {name: value for name, value in fields.items() if name in SloRequest.model_fields}
    document |= {name: value for name, value in fields.items() if name not in slo}
    if slo:
        objectives = document.get("slo", {})
        document["slo"] = {**objectives, **slo} if isinstance(objectives, Mapping) else objectives
    if "data" in fields:
        document["data"] = _source(fields["data"])
    return query_of(document), base


def _source(data: object) -> object:
    """Return the data of a query document; what stands for none is for its schema to refuse."""
    if isinstance(data, DataSource):
        return data.model_dump(mode="json", exclude_unset=True)
    if isinstance(data, int):
        return {"examples": data}
    if not isinstance(data, str | PathLike):
        return data
    if isinstance(data, str) and _DATASET.fullmatch(data):
        return {"dataset": data}
    path = Path(data).absolute()
    return {"folder" if path.is_dir() else "jsonl": str(path)}
