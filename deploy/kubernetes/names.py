"""Names, labels and versions of images that are valid, and unique for any query, plan and tier."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from circinus.pipelines import checks

FIELD_MANAGER = "circinus"
"""Of what we apply, and the value of `MANAGED_BY`."""
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

NAME, VERSION = "app.kubernetes.io/name", "app.kubernetes.io/version"
PART_OF, OF_QUERY = "app.kubernetes.io/part-of", "app.kubernetes.io/instance"
"""Labels that Kubernetes recommends, beside those above; an instance of workers is a query's, or
the release that they are of (see `ownership`)."""
WORKER_APP = "circinus-worker"
"""Name of the application that workers are; that of the service may call them, so is another."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SLUG = 24
_SHORT = 5  # bytes of the hash in a name
_READABLE = (16, 14)  # of the first parts of a name: with prefix and hash at most 45 characters


def label_value(text: str) -> str:
    """Return a valid label value: the text if it is one, else a readable part and its hash."""
    if _LABEL.fullmatch(text):
        return text
    return f"{_slug(text) or 'x'}-{_hash([text])}"


def labels_of(query_id: str, plan_id: str) -> dict[str, str]:
    """Return the labels of everything of a plan."""
    return {MANAGED_BY: FIELD_MANAGER, QUERY: label_value(query_id), PLAN: label_value(plan_id)}


def recommended(query_id: str, version: str) -> dict[str, str]:
    """Return the labels that Kubernetes recommends, of workers of a query: none to select by."""
    return {
        NAME: WORKER_APP,
        OF_QUERY: label_value(query_id),
        PART_OF: FIELD_MANAGER,
        VERSION: label_value(version),
    }


def object_name(query_id: str, use: str, *more: str) -> str:
    """Return a name that is valid for every kind (at most 45 of `[a-z0-9-]`, a letter first).

    It begins with readable parts: the query, and the tier or other use. Unlike parts
    have unlike names but for collisions of 40-bit hashes among objects of one query and use. A
    Deployment's leaves room for what the cluster adds to it for its pods.
    """
    slugs = [_slug(part, most) for part, most in zip((query_id, use), _READABLE, strict=True)]
    return "-".join(["cq", *filter(None, slugs), _hash([query_id, use, *more], _SHORT)])


def content_hash(document: Mapping[str, object]) -> str:
    """Return the hash of a document: equal documents have equal ones, in every process."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return blake2b(text.encode(), digest_size=10).hexdigest()


def selector_of(labels: Mapping[str, str]) -> str:
    """Return the selector of everything of ours with these labels."""
    requirements = {MANAGED_BY: FIELD_MANAGER, **labels}
    return ",".join(f"{name}={value}" for name, value in requirements.items())


def _slug(text: str, most: int = _SLUG) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")


def _hash(parts: Iterable[str], size: int = 10) -> str:
    return blake2b(json.dumps(list(parts)).encode(), digest_size=size).hexdigest()


WORKER_IMAGE, SERVICE_IMAGE = "circinus/worker:0.1.0", "circinus/service:0.1.0"
"""What is run unless another image is named: those of this version."""

_DIGEST_LENGTH = 12


def version_of(image: str, field: str = "image") -> str:
    """Return the tag of an image, or the beginning of its digest; InvalidInput if it has neither.

    `latest` is no version: what it was depends on when a node pulled it, and a rollback would
    bring back the same.
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    rule = "must have a tag other than latest, or a digest"
    checks.require(bool(digest) or tag not in ("", "latest"), field, rule, image)
    return tag or digest.rpartition(":")[2][:_DIGEST_LENGTH]
