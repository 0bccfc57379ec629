"""Names and labels that are valid and unique for any query, plan, pipeline and tier."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from circinus.deploy.kubernetes.api import FIELD_MANAGER, Object

MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
QUERY, PLAN, TIER = "circinus.io/query", "circinus.io/plan", "circinus.io/tier"
MACHINE, MACHINE_TYPE = "circinus.io/machine", "circinus.io/machine-type"
ROLE = "circinus.io/role"
GROUP = "circinus.io/group"
"""Label: the Deployment of a scheduled plan that a pod is of."""
INSTANCE = "circinus.io/instance"
"""Label of what the launcher starts: its name; annotation: the instance in words."""
CONTENT = "circinus.io/content"
"""Annotation: hash of the object as it was rendered."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_READABLE = 24


def label_value(text: str) -> str:
    """Give a valid label value: the text if it is one, else a readable part and its hash."""
    if _LABEL.fullmatch(text):
        return text
    return f"{_slug(text) or 'x'}-{_hash([text])}"


def labels_of(query_id: str, plan_id: str) -> dict[str, str]:
    """Give the labels of everything of a plan."""
    return {MANAGED_BY: FIELD_MANAGER, QUERY: label_value(query_id), PLAN: label_value(plan_id)}


def object_name(*parts: str) -> str:
    """Give a name that is valid for every kind (at most 63 of `[a-z0-9-]`, a letter first).

    Unlike parts have unlike names but for collisions of 80-bit hashes; the slug is for people.
    """
    slug = _slug(parts[0])
    return f"cq-{slug}-{_hash(parts)}" if slug else f"cq-{_hash(parts)}"


def content_hash(document: Object) -> str:
    """Give the hash of a document: equal documents have equal ones, in every process."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return blake2b(text.encode(), digest_size=10).hexdigest()


def selector_of(labels: Mapping[str, str]) -> str:
    """Give the selector of everything of ours with these labels."""
    given = {MANAGED_BY: FIELD_MANAGER, **labels}
    return ",".join(f"{name}={value}" for name, value in given.items())


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_READABLE].strip("-")


def _hash(parts: Iterable[str]) -> str:
    return blake2b(json.dumps(list(parts)).encode(), digest_size=10).hexdigest()
