"""The images of containers: which version one is, so that what runs is known."""

from __future__ import annotations

from circinus.pipelines import checks

WORKER_IMAGE, SERVICE_IMAGE = "circinus/worker:0.1.0", "circinus/service:0.1.0"
"""What is run unless another image is named: those of this version."""

_DIGEST_SHOWN = 12


def version_of(image: str, field: str = "image") -> str:
    """Return the tag of an image, or the beginning of its digest; InvalidInput if it has neither.

    `latest` is no version: what it was depends on when a node pulled it, and a rollback would
    bring back the same.
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    rule = "must have a tag other than latest, or a digest"
    checks.require(bool(digest) or tag not in ("", "latest"), field, rule, image)
    return tag or digest.rpartition(":")[2][:_DIGEST_SHOWN]
