"""The custom resource `PipelineQuery`: its spec is the query file, checked by the API server.

The schema is made from that of the query file, so the two cannot drift apart. Kubernetes wants it
*structural*: without references, with a type everywhere, nothing forbidden by omission (a client
that validates strictly, as kubectl does, still refuses unknown fields).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circinus.api.operator.observed import observed_schema
from circinus.api.operator.rules import add_rules
from circinus.api.operator.scaling import SCALE, replicas_schema, scale_schema
from circinus.api.query_file import query_schema
from circinus.api.schemas.query import LARGEST_SEED

GROUP = "circinus.io"
VERSION = "v1alpha1"
KIND = "PipelineQuery"
PLURAL = "pipelinequeries"
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
        "name": VERSION,
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
    found = {k: v for k, v in schema.items() if k not in _UNKNOWN_TO_KUBERNETES}
    if found.get("default", ...) is None:
        del found["default"]
    for bound in ("Minimum", "Maximum"):  # OpenAPI 3.0 has them as truth values
        exclusive = found.pop(f"exclusive{bound}", None)
        if exclusive is not None:
            found |= {bound.lower(): exclusive, f"exclusive{bound}": True}
    if found.get("type") == "integer":
        found["format"] = "int64"
        if found.get("maximum") == LARGEST_SEED:
            del found["maximum"]  # the format says it; the server's own arithmetic cannot
    if "properties" in found:
        found["properties"] = {
            name: structural(part, definitions) for name, part in found["properties"].items()
        }
    for inner in ("additionalProperties", "items"):
        if isinstance(schema.get(inner), Mapping):
            found[inner] = structural(schema[inner], definitions)
    return found


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without reference, and without the choice of null or of several types."""
    found = dict(schema)
    if "$ref" in found:
        name = found.pop("$ref").rpartition("/")[2]
        found = {**_resolved(definitions[name], definitions), **found}
    choices = [choice for choice in found.get("anyOf", ()) if choice.get("type") != "null"]
    typed = [choice for choice in choices if "type" in choice or "$ref" in choice]
    found.pop("anyOf", None)
    if not typed:  # which fields go together; that null is left out Kubernetes knows by itself
        needed = [{"required": each["required"]} for each in choices if "required" in each]
        return {**found, "anyOf": needed} if needed and len(needed) == len(choices) else found
    if len(typed) == 1:
        return _resolved(typed[0], definitions) | found
    # Kubernetes knows no choice of types: what it is, the service checks.
    kept = {k: v for k, v in found.items() if k in ("description", "default")}
    return {**kept, "x-kubernetes-preserve-unknown-fields": True}


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
            "slo": _text("What is known of each SLO, in words."),
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
