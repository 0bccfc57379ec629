"""Query and infrastructure files (YAML, read strictly), and the inputs that a query names.

What YAML lets pass silently is refused here: keys that repeat, aliases (a few lines can stand for
gigabytes), tags that build objects, keys that are no text. Scalars are read as YAML 1.2 reads
them, so `1e-3` is a number, `yes` is text and `1:30` is not ninety.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from circinus.api.schemas.faults import checked
from circinus.api.schemas.query import DataSource, QueryRequest
from circinus.pipelines.dataset import Dataset, load_folder, load_json_lines
from circinus.pipelines.errors import Fault, InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.presets import PRESETS

LARGEST_FILE_BYTES = 2**20
DEEPEST = 32  # levels of nesting; a query has three
LARGEST_INTEGER = 2**64


def query_of(document: object) -> QueryRequest:
    """Give the query that a parsed file or body describes; InvalidInput with all broken rules."""
    return checked(QueryRequest, document)


def query_schema() -> dict[str, object]:
    """Give the JSON schema of the query file."""
    schema = QueryRequest.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def read_infrastructure(reference: str) -> Infrastructure:
    """Give the infrastructure of a preset or YAML file; InvalidInput with every broken rule."""
    if reference in PRESETS:
        return PRESETS[reference]
    path = Path(reference)
    if not path.is_file():
        rule = f"must be a file or one of {', '.join(PRESETS)}"
        raise InvalidInput.of("infrastructure", rule, reference)
    return infrastructure_from_dict(read_document(path))


def load_data(source: DataSource, pipeline: Pipeline, *, base: Path) -> Dataset:
    """Give the inputs to profile on; relative paths start from `base`, the query file's folder.

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
    """Give the mapping of a YAML file; InvalidInput unless it is readable, strict and only one."""
    field = f"file {path.name}"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput.of(field, f"must be readable ({reason})", str(path)) from error
    return parse_document(data, field=field)


def parse_document(data: bytes, *, field: str = "document") -> dict[str, object]:
    """Give the mapping that strict YAML text, in UTF-8, holds; else InvalidInput on `field`."""
    if len(data) > LARGEST_FILE_BYTES:
        rule = f"must have at most {LARGEST_FILE_BYTES} bytes"
        raise InvalidInput([Fault(field, rule, "more")])
    try:
        text = data.decode("utf-8-sig")
        _check_events(text, field)
        document = yaml.load(text, _StrictLoader)
    except UnicodeDecodeError as error:
        raise InvalidInput.of(field, "must be UTF-8 text", data[:32]) from error
    except yaml.YAMLError as error:
        raise InvalidInput([Fault(field, "must be YAML", _problem(error))]) from error
    if not isinstance(document, dict):
        raise InvalidInput.of(field, "must hold a mapping", document)
    return document


def _check_events(text: str, field: str) -> None:
    """Refuse what would be expensive to build, before anything is built."""
    depth = documents = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        for broken, rule, found in (
            (isinstance(event, yaml.AliasEvent), "must not use aliases", "one on"),
            (getattr(event, "tag", None) is not None, "must not use tags", "one on"),
            (depth > DEEPEST, f"must nest at most {DEEPEST} deep", "more on"),
            (documents > 1, "must hold one document", "two by"),
        ):
            if broken:
                raise InvalidInput([Fault(field, rule, f"{found} line {_line(event)}")])


def _problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _line(place: yaml.Event | yaml.Node) -> int:
    return 0 if place.start_mark is None else place.start_mark.line + 1


class _StrictLoader(yaml.SafeLoader):
    """Reads the YAML 1.2 core schema, refusing what a query file has no use for."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def strict_mapping(self, node: yaml.MappingNode) -> dict[str, object]:
        """Give a mapping with text keys, none of which repeats."""
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            line = _line(key_node)
            if not isinstance(key, str):
                raise InvalidInput.of(f"key on line {line}", "must be text", key)
            if key in result:
                raise InvalidInput([Fault(key[:63], "must not repeat", f"again on line {line}")])
            result[key] = self.construct_object(value_node, deep=True)
        return result

    def strict_integer(self, node: yaml.ScalarNode) -> int:
        """Give an integer of a size that something here could mean."""
        text = str(node.value)
        line = _line(node)
        if len(text) > len(str(LARGEST_INTEGER)) + 1 or abs(int(text)) >= LARGEST_INTEGER:
            raise InvalidInput.of(f"number on line {line}", "must be below 2^64", text)
        return int(text)


_StrictLoader.add_constructor("tag:yaml.org,2002:map", _StrictLoader.strict_mapping)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.strict_integer)
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )
