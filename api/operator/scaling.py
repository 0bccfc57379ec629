"""The number of replicas of a `PipelineQuery`: its scale, which autoscalers of the cluster drive.

Kubernetes stores the number in the spec, and counts each change of it as a change of the spec. To
us it is none: a query that is scaled serves on as it is, and is not planned again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from circinus.api.client import Client, Refused
from circinus.api.schemas.deployments import ObjectivesView
from circinus.deploy.kubernetes import names
from circinus.scheduler.rolling.replicas import REPLICAS

_REPLICAS: Final = "replicas"
_PLANNED_FOR: Final = "plannedFor"
_CONFLICT = 409
SCALE: Final[Mapping[str, str]] = {
    "specReplicasPath": f".spec.{_REPLICAS}",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
"""The scale subresource of the definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFor:
    """What of a spec makes a query: all but how many replicas it should have."""

    spec: Mapping[str, object]
    generation: int  # at which that was written
    replicas: int | None  # None: they follow the rate

    @classmethod
    def of(
        cls, spec: Mapping[str, object], generation: int, status: Mapping[str, Any]
    ) -> PlannedFor:
        """Return it for an object as the cluster has it; `status` is what was written last."""
        wanted = dict(spec)
        replicas = wanted.pop(_REPLICAS, None)
        recorded = status.get(_PLANNED_FOR) or {}
        same = recorded.get("hash") == _hash(wanted)
        return cls(
            spec=wanted,
            generation=int(recorded["generation"]) if same else generation,
            replicas=replicas if isinstance(replicas, int) else None,
        )

    @property
    def facts(self) -> Mapping[str, object]:
        """What the status remembers of it."""
        return {_PLANNED_FOR: {"generation": self.generation, "hash": _hash(self.spec)}}


def rescale(service: Client, query_id: str, *, has: int | None, wanted: int | None) -> None:
    """Set the replicas in the spec of a live query's object; None: they follow the rate.

    `has` is the number before. Errors as of a client's verbs.
    """
    if has == wanted:
        return
    try:
        if wanted is None:
            service.drop_replicas(query_id)
        else:
            service.set_replicas(query_id, wanted)
    except Refused as refusal:
        if refusal.problem.status != _CONFLICT:  # else it was retired meanwhile
            raise


def scale_facts(query_id: str, objectives: ObjectivesView | None) -> Mapping[str, object]:
    """Return the scale in the status: the number of replicas, and the selector of their pods.

    `objectives`: how the query fares; None: unknown, and both are left out.
    """
    if objectives is None or objectives.scaled_tier is None:
        return {"replicas": None, "selector": None}
    labels = {names.QUERY: query_id, names.TIER: objectives.scaled_tier}
    selector = ",".join(f"{name}={names.label_value(text)}" for name, text in labels.items())
    return {"replicas": objectives.replicas.get(objectives.scaled_tier, 0), "selector": selector}


def replicas_schema() -> dict[str, Any]:
    """Return the OpenAPI schema of `spec.replicas`."""
    return {
        "type": "integer",
        "format": "int32",
        "minimum": int(REPLICAS.least),
        "maximum": int(REPLICAS.most),
        "description": (
            "Replicas of the plan on the shared tier where it has most, as far as there is room "
            "and never fewer than its own. Left out: they follow the rate of requests."
        ),
    }


def scale_schema() -> dict[str, Any]:
    """Return the OpenAPI schemas of the scale in the status."""
    whole = {"type": "integer", "format": "int64"}
    planned = {"generation": whole, "hash": {"type": "string"}}
    return {
        "replicas": {"type": "integer", "format": "int32", "description": "That take requests."},
        "selector": {"type": "string", "description": "Of the pods that `replicas` counts."},
        _PLANNED_FOR: {
            "type": "object",
            "description": "Which spec, but for its replicas, the query is of.",
            "properties": planned,
        },
    }


def _hash(spec: Mapping[str, object]) -> str:
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=10).hexdigest()
