"""Short texts that change whenever measuring or planning could give something else."""

from __future__ import annotations

import json
import platform
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version

from circinus.api.store.journal import edition_of
from circinus.api.store.records import JsonObject
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.payload import content_hash
from circinus.pipelines.pipeline import Pipeline

_PACKAGES = ("circinus", "numpy", "scipy")
"""Whose versions decide what a search does with equal measurements."""


def pipeline_fingerprint(pipeline: Pipeline) -> str:
    """Give `name@edition`: of the operators, their versions, order and knobs."""
    knobs = [(slot.key, slot.knob.values) for slot in pipeline.graph.slots]
    return f"{pipeline.name}@{edition_of(pipeline)}{_digest(repr(knobs).encode())}"


def planning_fingerprints(
    spec: JsonObject, dataset: Dataset, pipeline: Pipeline
) -> dict[str, str]:
    """Give what a checkpoint must agree with: of query, data, pipeline and versions."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return {
        "query": _digest(text.encode()),
        "data": data_fingerprint(dataset),
        "pipeline": pipeline_fingerprint(pipeline),
        "versions": ", ".join([f"python {platform.python_version()}", *map(_version, _PACKAGES)]),
    }


def data_fingerprint(dataset: Dataset) -> str:
    """Give the fingerprint of the inputs and expected outputs, in their order."""
    digest = blake2b(digest_size=8)
    for example in dataset.examples:
        digest.update(content_hash(example.input).encode())
        digest.update(content_hash(example.expected).encode())
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=4).hexdigest()


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:  # run from a folder that was never installed
        return f"{package} unknown"
