"""The custom resource definition is the query file's schema in Kubernetes' form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from circinus.api.operator.definition import definition, structural
from circinus.api.query_file import query_schema
from circinus.deploy.methods import METHODS

CHART = Path("deploy/chart/files/crds/pipelinequery.yaml")


def schema() -> dict[str, Any]:
    found: dict[str, Any] = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(tree: object) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for inner in tree.values():
            yield from nodes(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from nodes(inner)


def test_the_chart_carries_the_definition() -> None:
    committed = yaml.safe_load(CHART.read_text(encoding="utf-8"))
    assert committed == definition(), f"run: circinus operator --definition > {CHART}"


@pytest.mark.parametrize("key", ["$ref", "$defs", "propertyNames", "uniqueItems", "title"])
def test_the_spec_has_nothing_that_a_structural_schema_may_not_have(key: str) -> None:
    spec = schema()["properties"]["spec"]
    assert [node for node in nodes(spec) if key in node and "type" in node] == []


def test_every_field_has_a_type_and_every_exclusive_bound_is_a_truth_value() -> None:
    for node in nodes(schema()):
        for field in node.get("properties", {}).values():
            assert "type" in field or "x-kubernetes-preserve-unknown-fields" in field
        assert node.get("exclusiveMinimum", True) is True


def test_every_field_of_a_query_but_files_can_be_set() -> None:
    asked: Any = query_schema()["properties"]
    offered = schema()["properties"]["spec"]["properties"]
    assert offered.keys() == asked.keys()
    assert set(offered["data"]["properties"]) == {"examples", "seed", "dataset", "on_failure"}


def test_a_spec_names_the_ways_to_plan_and_a_status_has_as_many_parts() -> None:
    spec, status = (schema()["properties"][part]["properties"] for part in ("spec", "status"))
    asked, told = spec["planning"]["properties"], status["planning"]["properties"]
    assert asked["method"]["enum"] == list(METHODS)
    assert asked.keys() == told.keys()


def test_every_rule_says_what_to_do_and_no_choice_or_pattern_stays_without_words() -> None:
    spec = schema()["properties"]["spec"]
    for node in nodes(spec):
        if isinstance(node.get("type"), str):
            assert {"anyOf", "oneOf", "not", "pattern"}.isdisjoint(node)
        for rule in node.get("x-kubernetes-validations", []):
            assert len(rule["message"]) > 20
    assert len([n for n in nodes(spec) if "x-kubernetes-validations" in n]) == 7


def test_the_definition_is_written_without_aliases() -> None:
    assert "&id" not in CHART.read_text(encoding="utf-8")


def test_whether_an_object_is_ready_is_a_column() -> None:
    columns = definition()["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if c["priority"] == 0] == [
        "Phase", "Ready", "Plan", "Cost", "SLO", "Age",
    ]  # fmt: skip


def test_a_reference_beside_a_default_keeps_the_default() -> None:
    definitions = {"Kind": {"type": "string", "enum": ["a", "b"], "title": "Kind"}}
    field = {"$ref": "#/$defs/Kind", "default": "a", "description": "Which."}
    assert structural(field, definitions) == {
        "type": "string",
        "enum": ["a", "b"],
        "default": "a",
        "description": "Which.",
    }


def test_a_choice_of_null_becomes_a_field_that_can_be_left_out() -> None:
    field = {
        "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}],
        "default": None,
    }
    assert structural(field, {}) == {"type": "number", "minimum": 0, "exclusiveMinimum": True}


def test_a_choice_of_types_is_left_to_the_service() -> None:
    field = {"anyOf": [{"type": "number"}, {"type": "string"}], "description": "A value."}
    assert structural(field, {}) == {
        "description": "A value.",
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_a_choice_of_fields_stays_and_maps_and_lists_are_followed() -> None:
    inner = {"$ref": "#/$defs/Inner"}
    field = {
        "type": "object",
        "additionalProperties": {"type": "array", "items": inner, "uniqueItems": True},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    definitions = {"Inner": {"type": "integer", "title": "Inner"}}
    assert structural(field, definitions) == {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "integer", "format": "int64"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
