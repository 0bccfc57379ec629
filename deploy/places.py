"""Instances as a queue sees them: a place for each request that they take at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from deploy.workers.client import WorkerClient
from scheduler.dispatch.policy import Fleet

_LEAST_BUSY_S = 1e-6

PlaceKey = tuple[str, int]
"""Address of an instance, number among its places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """What is known of an instance beforehand.

    Attributes:
        name: Instances of a name take alike long: they learn together. None: it learns alone.
        kind: Its number among the types; 0 is the base type.
        coefficient: See `scheduler.dispatch.policy.Fleet`.
        price: Likewise.
    """

    name: str | None = None
    kind: int = 0
    coefficient: float = 1.0
    price: float = 1.0


@dataclass(slots=True, eq=False)
class Place:
    """Room for one request at an instance.

    Attributes:
        client: Calls the instance.
        type: Of the instance.
        number: Of the place, from 0.
        idle: Whether a request could start there now.
        began: When the one at work there started.
        predicted_s: What that was predicted to take.
    """

    client: WorkerClient
    type: InstanceType
    number: int = 0
    idle: bool = True
    began: float = 0.0
    predicted_s: float = 0.0

    @property
    def key(self) -> PlaceKey:
        """Give what tells it from the others of a queue."""
        return (self.client.address, self.number)

    @property
    def name(self) -> str:
        """Give the name under which what it takes is learnt."""
        return self.type.name or self.client.address

    def busy_s(self, now: float) -> float:
        """Give the predicted seconds until it is free.

        What takes longer than predicted is taken to last as long again as it already did: with
        no seconds left it would look as good as an idle instance, and a request might be kept
        waiting for it beside one.
        """
        if self.idle:
            return 0.0
        elapsed = now - self.began
        left = self.predicted_s - elapsed
        return max(left if left > 0 else elapsed, _LEAST_BUSY_S)


def kind_at(kind: str, place: Place) -> str:
    """Give the name under which the latencies of a kind of request there are learnt."""
    return f"{kind} at {place.name}"


def fleet_of(places: Iterable[Place]) -> Fleet:
    """Give the places as a policy sees them."""
    types = [place.type for place in places]
    return Fleet(
        np.array([type.kind for type in types], dtype=np.int64),
        np.array([type.coefficient for type in types]),
        np.array([type.price for type in types]),
    )
