"""The plans that were deployed, kept in the cluster: a ConfigMap for each revision of a query."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass

from deploy.kubernetes.api import FIELD_MANAGER, Object
from deploy.kubernetes.manifests import Rendered
from deploy.kubernetes.names import MANAGED_BY, PLAN, QUERY, ROLE, label_value, object_name

HISTORY = "history"
KEPT = 10
"""Revisions of a query that are kept."""
_REVISION = "circinus.io/revision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A plan that was deployed.

    Attributes:
        number: Counts from 1.
        name: Of its ConfigMap.
        rendered: What was applied.
    """

    number: int
    name: str
    rendered: Rendered


def record_of(rendered: Rendered, number: int) -> Object:
    """Give the ConfigMap of a revision."""
    packed = gzip.compress(json.dumps(rendered.objects).encode(), mtime=0)
    name = object_name("history", rendered.query_id, str(number))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": rendered.namespace,
            "labels": {
                MANAGED_BY: FIELD_MANAGER,
                QUERY: label_value(rendered.query_id),
                PLAN: label_value(rendered.plan_id),
                ROLE: HISTORY,
            },
            "annotations": {
                _REVISION: str(number),
                "circinus.io/query-id": rendered.query_id,
                "circinus.io/plan-id": rendered.plan_id,
            },
        },
        "data": {"objects.json.gz": base64.b64encode(packed).decode()},
    }


def revisions(records: Iterable[Object]) -> list[Revision]:
    """Give what ConfigMaps of `record_of` hold, the oldest first."""
    found = [_revision(record) for record in records]
    return sorted(found, key=lambda revision: revision.number)


def _revision(record: Object) -> Revision:
    metadata = record["metadata"]
    notes = metadata["annotations"]
    objects = json.loads(gzip.decompress(base64.b64decode(record["data"]["objects.json.gz"])))
    return Revision(
        number=int(notes[_REVISION]),
        name=metadata["name"],
        rendered=Rendered(
            query_id=notes["circinus.io/query-id"],
            plan_id=notes["circinus.io/plan-id"],
            namespace=metadata["namespace"],
            objects=tuple(objects),
        ),
    )
