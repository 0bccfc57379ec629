"""The inputs that a query names, loaded in this process."""

from __future__ import annotations

from pathlib import Path

from api.schemas import DataSource
from pipelines.dataset import Dataset
from pipelines.dataset_files import load_folder, load_json_lines
from pipelines.errors import InvalidInput
from pipelines.pipeline import Pipeline


def load_data(source: DataSource, pipeline: Pipeline, *, base: Path) -> Dataset:
    """Give the inputs to profile on.

    Args:
        source: What the query says.
        pipeline: Makes the examples, when they are asked for.
        base: Folder that relative paths start from: the query file's.

    Raises:
        InvalidInput: If the pipeline brings no examples, or a file is missing or malformed.
    """
    if source.folder is not None:
        return load_folder(base / source.folder)
    if source.jsonl is not None:
        return load_json_lines(base / source.jsonl)
    if pipeline.examples is None:
        rule = f"must be left out: pipeline {pipeline.name} brings no data of its own"
        raise InvalidInput.of("data.examples", rule, source.examples)
    return pipeline.examples(source.examples or 0, source.seed)
