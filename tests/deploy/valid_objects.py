"""Schemas of the newest versions of Kubernetes that refuse fields which they do not know."""

from __future__ import annotations

from functools import cache

import jsonschema
import referencing
from kubernetes_validate.utils import all_versions, schema_contents

from circinus.deploy.kubernetes.api import Object

VERSIONS = all_versions()[-3:]
"""The three newest of Kubernetes."""


@cache
def validator(kind: str, api_version: str, version: str) -> jsonschema.Draft202012Validator:
    """What kubernetes-validate does, strictly, without reading its schemas for every object."""
    group, _, number = api_version.rpartition("/")
    name = "-".join(filter(None, [kind.lower(), group.split(".")[0], number]))
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    schema = schema_contents(f"{folder}/{name}.json", version)
    definitions = schema_contents(f"{folder}/_definitions.json", version)
    resources = [referencing.Resource.from_contents(each) for each in (schema, definitions)]
    registry = (resources @ referencing.Registry()).crawl()
    return jsonschema.Draft202012Validator(schema, registry=registry)


def assert_valid(document: Object) -> None:
    """Fail unless each version would take it."""
    for version in VERSIONS:
        validator(document["kind"], document["apiVersion"], version).validate(document)
