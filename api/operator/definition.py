"""The custom resource `PipelineQuery`: its spec is the query file, checked by the API server.

The schema is made from that of the query file, so the two cannot drift apart. Kubernetes wants it
*structural*: without references, with a type everywhere. Choices and patterns become rules with
messages of our own, as the server would name only the first way or the bare pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circinus.api.operator.observed import observed_schema
from circinus.api.operator.scaling import SCALE, replicas_schema, scale_schema
from circinus.api.query_file import query_schema
from circinus.api.schemas.query import LARGEST_SEED
from circinus.deploy.kubernetes.ownership import API_VERSION, GROUP, KIND, PLURAL

_NAME = "[A-Za-z][A-Za-z0-9_.-]{0,62}"
_NAMED = "a letter, then at most 62 letters, digits, '_', '.', '-'"
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRule:
    """A rule of the API server for a part of the spec."""

    path: tuple[str, ...]  # of the part; `*`: each value of a map
    rule: str  # in CEL; `self` is the part
    message: str  # what to do where it does not hold


RULES = (
    SpecRule(
        path=("pipeline",),
        rule=f"self.matches('^{_NAME}$')",
        message=f"pipeline must be the name of a registered pipeline: {_NAMED}",
    ),
    SpecRule(
        path=("pipeline",),
        rule="self == oldSelf",
        message="pipeline must stay as it is: make another PipelineQuery",
    ),
    SpecRule(
        path=("tenant",),
        rule=f"self.matches('^({_NAME})?$')",
        message=f"tenant must be a name: {_NAMED}; or be left out",
    ),
    SpecRule(
        path=("data",),
        rule="has(self.examples) != has(self.dataset)",
        message=(
            "data must have either examples (how many of the pipeline's own) or dataset (the id "
            "of one that was handed over to the service)"
        ),
    ),
    SpecRule(
        path=("data",),
        rule="has(self.examples) || !has(self.seed) || self.seed == 0",
        message="data.seed must be left out without data.examples: it chooses among examples",
    ),
    SpecRule(
        path=("data", "dataset"),
        rule="self.matches('^d-[0-9a-f]{32}$')",
        message=(
            "dataset must be the id of a data set, `d-` and 32 digits: `circinus datasets list` "
            "shows them, `circinus datasets add PATH` hands one over"
        ),
    ),
    SpecRule(
        path=("slo",),
        rule="has(self.latency_s) || has(self.throughput_per_s)",
        message=(
            "slo must have latency_s (most seconds per request) or throughput_per_s (least "
            "requests per second, for batch work), or both"
        ),
    ),
    SpecRule(
        path=(),
        rule="!has(self.request_rate_per_s) || !has(self.slo.throughput_per_s)",
        message=(
            "request_rate_per_s must be left out with slo.throughput_per_s: batch work has "
            "always some to do"
        ),
    ),
    SpecRule(
        path=("restrictions", "tiers", "*"),
        rule="has(self.only) || has(self.never)",
        message=(
            "say `only` (one of these tiers) or `never` (none of these), or leave the operator out"
        ),
    ),
)
_UNSEEN = ("restrictions", "knobs", "*", "*")
"""Whose fields have values of any type, which rules cannot see: the service checks them."""


def add_rules(spec: dict[str, Any]) -> None:
    """Put the rules into the schema of a spec, in place of the choices and patterns there."""
    spec["properties"]["tenant"]["maxLength"] = _LONGEST_NAME  # what a match costs is known
    spec["properties"]["data"]["properties"]["dataset"]["maxLength"] = _LONGEST_NAME
    del _part(spec, _UNSEEN)["anyOf"]
    for each in RULES:
        part = _part(spec, each.path)
        for replaced in ("anyOf", "pattern"):
            part.pop(replaced, None)
        rules = part.setdefault("x-kubernetes-validations", [])
        rules.append({"rule": each.rule, "message": each.message})


def _part(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        schema = schema["additionalProperties"] if name == "*" else schema["properties"][name]
    return schema


_DESCRIPTION = "A pipeline on some data with objectives, planned and served by Circinus."

_UNKNOWN_TO_KUBERNETES = frozenset(
    {"title", "additionalProperties", "propertyNames", "uniqueItems", "$schema", "$defs"}
)
_FILES = ("folder", "jsonl")
_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Plan", "string", ".status.planId", 0),
    ("Cost", "number", ".status.costUsdPerHour", 0),
    ("SLO", "string", ".status.slo", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Query", "string", ".status.queryId", 1),
    ("Message", "string", ".status.message", 1),
)


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition as a document."""
    parts = ("name", "type", "jsonPath", "priority")
    columns = [dict(zip(parts, column, strict=True)) for column in _COLUMNS]
    version = {
        "name": API_VERSION.partition("/")[2],
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": dict(SCALE)},
        "additionalPrinterColumns": columns,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": _DESCRIPTION,
                "required": ["spec"],
                "properties": {"spec": _spec_schema(), "status": _status_schema()},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["pq"],
            },
            "versions": [version],
        },
    }


def _spec_schema() -> dict[str, Any]:
    whole = query_schema()
    definitions: Any = whole["$defs"]
    spec = structural(whole, definitions)
    data = spec["properties"]["data"]
    del data["oneOf"]  # a service reads no files
    for name in _FILES:
        del data["properties"][name]
    data["description"] = "Which inputs to profile on."
    spec["properties"]["replicas"] = replicas_schema()
    add_rules(spec)
    return spec


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema of pydantic in the form that Kubernetes takes.

    Its references name `definitions`; a null that stands for "left out" is dropped.
    """
    schema = _resolved(schema, definitions)
    converted = {k: v for k, v in schema.items() if k not in _UNKNOWN_TO_KUBERNETES}
    if converted.get("default", ...) is None:
        del converted["default"]
    for bound in ("Minimum", "Maximum"):  # OpenAPI 3.0 has them as truth values
        exclusive = converted.pop(f"exclusive{bound}", None)
        if exclusive is not None:
            converted |= {bound.lower(): exclusive, f"exclusive{bound}": True}
    if converted.get("type") == "integer":
        converted["format"] = "int64"
        if converted.get("maximum") == LARGEST_SEED:
            del converted["maximum"]  # the format implies it; the server's arithmetic cannot
    if "properties" in converted:
        converted["properties"] = {
            name: structural(part, definitions) for name, part in converted["properties"].items()
        }
    for inner in ("additionalProperties", "items"):
        if isinstance(schema.get(inner), Mapping):
            converted[inner] = structural(schema[inner], definitions)
    return converted


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without reference, and without the choice of null or of several types."""
    merged = dict(schema)
    if "$ref" in merged:
        name = merged.pop("$ref").rpartition("/")[2]
        merged = {**_resolved(definitions[name], definitions), **merged}
    choices = [choice for choice in merged.get("anyOf", ()) if choice.get("type") != "null"]
    typed = [choice for choice in choices if "type" in choice or "$ref" in choice]
    merged.pop("anyOf", None)
    if not typed:  # which fields belong together; Kubernetes leaves out null by itself
        needed = [{"required": each["required"]} for each in choices if "required" in each]
        return {**merged, "anyOf": needed} if needed and len(needed) == len(choices) else merged
    if len(typed) == 1:
        return _resolved(typed[0], definitions) | merged
    # Kubernetes has no choice of types: the service checks it.
    metadata = {k: v for k, v in merged.items() if k in ("description", "default")}
    return {**metadata, "x-kubernetes-preserve-unknown-fields": True}


def _status_schema() -> dict[str, Any]:
    condition = {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": _text(),
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": _text(),
            "message": _text(),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    }
    planning = {
        "method": _text("Left out: no method has these parts."),
        "strategy": _text(),
        "stopping": _text("Left out: the strategy decides itself."),
        "sampling": _text(),
    }
    return {
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            **{name: _text() for name in ("phase", "message", "queryId", "planId")},
            "planning": {
                "type": "object",
                "description": "How the query is planned.",
                "properties": planning,
            },
            "servedBy": _text("Query of an older spec that answers requests meanwhile."),
            "costUsdPerHour": {"type": "number"},
            "slo": _text("The state of each SLO, in words."),
            "sloStates": {"type": "object", "additionalProperties": _text()},
            "observed": observed_schema(),
            **scale_schema(),
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }


def _text(description: str = "") -> dict[str, Any]:
    # One of its own each time: what stands twice would be written as an alias.
    return {"type": "string"} | ({"description": description} if description else {})
