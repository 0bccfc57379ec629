"""What of ours is in a namespace, and what has to change so that it is as rendered.

The plans that were deployed are kept there, too: a ConfigMap for each revision of a query. An
object agrees with what was rendered when everything that was rendered is in it: the server's
defaults and what other field managers own are not ours to compare.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import VERSIONS, Object, collection_of
from circinus.deploy.kubernetes.manifests import PLAN_ID, QUERY_ID, Rendered
from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import InvalidInput

KINDS = ("ConfigMap", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment")
"""Of the objects of a plan."""
KEPT = 10
"""Revisions of a query that are kept."""

_HISTORY = "history"
_REVISION = "circinus.io/revision"
_OBJECTS = "objects.json.gz"
_QUANTITY = re.compile(r"\.resources\.(requests|limits)\.|\.sizeLimit$")  # paths of amounts


def deployed(
    listed: Callable[..., Object], namespace: str, query_id: str | None = None
) -> tuple[dict[str, Object], list[Object]]:
    """Return the objects of a query's plans by `Kind/name`, and the records of its history.

    None: everybody's. `listed` is that of `Cluster`, or one that tries again.
    """
    of_query = {} if query_id is None else {names.QUERY: names.label_value(query_id)}
    chosen = names.selector_of(of_query)
    objects: dict[str, Object] = {}
    records: list[Object] = []
    for kind in KINDS:
        for item in listed(collection_of(kind, namespace), labelSelector=chosen)["items"]:
            labels = item["metadata"]["labels"]
            notes = item["metadata"].get("annotations") or {}
            if labels.get(names.ROLE) == _HISTORY:
                records.append(item)
            elif names.CONTENT in notes and names.QUERY in labels:
                item |= {"kind": kind, "apiVersion": VERSIONS[kind]}  # lists leave it out
                objects[key_of(item)] = item
    return objects, records


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A plan that was deployed."""

    number: int  # counts from 1
    name: str  # of its ConfigMap
    rendered: Rendered  # what was applied


def record_of(rendered: Rendered, number: int) -> Object:
    """Return the ConfigMap of a revision."""
    labels = {**names.labels_of(rendered.query_id, rendered.plan_id), names.ROLE: _HISTORY}
    packed = gzip.compress(json.dumps(rendered.objects).encode(), mtime=0)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.object_name(rendered.query_id, _HISTORY, str(number)),
            "namespace": rendered.namespace,
            "labels": labels,
            "annotations": {
                _REVISION: str(number),
                QUERY_ID: rendered.query_id,
                PLAN_ID: rendered.plan_id,
            },
        },
        "data": {_OBJECTS: base64.b64encode(packed).decode()},
    }


def revisions(records: Iterable[Object]) -> list[Revision]:
    """Return what ConfigMaps of `record_of` hold, the oldest first."""
    return sorted(map(_revision, records), key=lambda revision: revision.number)


def _revision(record: Object) -> Revision:
    metadata = record["metadata"]
    notes = metadata["annotations"]
    objects = json.loads(gzip.decompress(base64.b64decode(record["data"][_OBJECTS])))
    rendered = Rendered(
        query_id=notes[QUERY_ID],
        plan_id=notes[PLAN_ID],
        namespace=metadata["namespace"],
        objects=tuple(objects),
    )
    return Revision(number=int(notes[_REVISION]), name=metadata["name"], rendered=rendered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is to be done, of objects by `Kind/name`."""

    create: tuple[str, ...] = ()  # that do not exist
    # That differ: `path: is -> should be`, by field
    change: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prune: tuple[str, ...] = ()  # that nobody wants
    unchanged: int = 0  # number of those that agree

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.create or self.change or self.prune)

    @property
    def to_apply(self) -> frozenset[str]:
        """The keys of what is to be written."""
        return frozenset((*self.create, *self.change))


def key_of(document: Object) -> str:
    """Return `Kind/name`."""
    return f"{document['kind']}/{document['metadata']['name']}"


def difference(wanted: Iterable[Object], live: Mapping[str, Object]) -> Difference:
    """Return what has to change, where `live` are all objects of ours for the same queries."""
    by_key = {key_of(document): document for document in wanted}
    changes = {
        key: tuple(_differences(document, live[key], ""))
        for key, document in by_key.items()
        if key in live
    }
    return Difference(
        create=tuple(key for key in by_key if key not in live),
        change={key: told for key, told in changes.items() if told},
        prune=tuple(key for key in live if key not in by_key),
        unchanged=sum(not told for told in changes.values()),
    )


def _differences(wanted: object, live: object, path: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(live, dict):
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else str(name)
            if name not in live and value not in ({}, []):
                yield f"{below}: absent -> {_shown(value)}"
            elif name in live:
                yield from _differences(value, live[name], below)
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for number, (value, there) in enumerate(zip(wanted, live, strict=True)):
            yield from _differences(value, there, f"{path}[{number}]")
    elif wanted != live and not _same_quantity(path, wanted, live):
        yield f"{path}: {_shown(live)} -> {_shown(wanted)}"


def _same_quantity(path: str, wanted: object, live: object) -> bool:
    """Whether the server only writes an amount otherwise: 1024Mi as 1Gi."""
    if not _QUANTITY.search(path):
        return False
    try:
        return quantity(str(wanted)) == quantity(str(live))
    except InvalidInput:
        return False


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
