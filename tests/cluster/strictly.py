"""Whether objects are what their kinds allow, and nothing more: no field that nobody knows."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema

from tests.cluster.definitions import EVERY, definition_of
from tests.deploy.valid_objects import VERSIONS
from tests.deploy.valid_objects import validator as kubernetes_validator

_OPEN = "x-kubernetes-preserve-unknown-fields"
_NOT_IN_THERE = {"CustomResourceDefinition"}


def violations(document: dict[str, Any]) -> list[str]:
    """Say what is wrong with an object; none: nothing."""
    kind = document["kind"]
    if kind in _NOT_IN_THERE:
        return []
    versions = VERSIONS[:1] if kind in EVERY else VERSIONS
    return [
        f"{kind} {document['metadata']['name']}: {error.json_path}: {error.message}"
        for version in versions
        for error in validator(kind, document["apiVersion"], version).iter_errors(document)
    ]


@cache
def validator(kind: str, api_version: str, version: str) -> Any:  # noqa: ANN401 - of two drafts
    """Return what validates a kind strictly: one of Kubernetes, of that version, or of others."""
    if kind in EVERY:
        return _of_others(kind, api_version)
    return kubernetes_validator(kind, api_version, version)


def _of_others(kind: str, api_version: str) -> jsonschema.Draft4Validator:
    definition = definition_of(kind)["spec"]
    group, _, number = api_version.rpartition("/")
    assert (definition["group"], definition["names"]["kind"]) == (group, kind)
    (schema,) = [
        v["schema"] for v in definition["versions"] if v["name"] == number and v["served"]
    ]
    closed = _closed(schema["openAPIV3Schema"])
    closed["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft4Validator(closed)  # whose exclusive bounds are truth values, too


def _closed(tree: Any) -> Any:  # noqa: ANN401 - a JSON tree
    """Let objects have the properties that they name and no others, as the API server does."""
    if isinstance(tree, list):
        return [_closed(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    found = {key: _closed(value) for key, value in tree.items()}
    named = isinstance(tree.get("properties"), dict) and tree.get("type") == "object"
    if named and not tree.get(_OPEN) and "additionalProperties" not in tree:
        found["additionalProperties"] = False
    return found
