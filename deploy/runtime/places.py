"""The instances of one tier that requests go to, as places: each takes one request at a time.

An instance has as many places as its answers state that it takes requests at once; to the policy a
place is an instance. A place whose caller gave up is out until its instance answers again; so are
all places of an instance that was lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from circinus.deploy.runtime.dual_prices import ALIKE, DualPrice, LearntPrices
from circinus.deploy.workers.client import WorkerClient
from circinus.pipelines.errors import Unavailable
from circinus.scheduler.dispatch.policy import Fleet

_SETTLE_S = 60.0
_RECOVERY_PAUSE_S = 0.1
_LEAST_BUSY_S = 1e-6

PlaceKey = tuple[str, int]
"""Address of an instance, number among its places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """What is configured of an instance beforehand."""

    name: str | None = None  # those of a name take alike long and learn together; None: alone
    price: DualPrice = ALIKE  # until unlike types are learnt
    places: int = 1  # requests that it takes at once, `>= 1`, more if its answers state so


@dataclass(slots=True, eq=False)
class Place:
    """Room for one request at an instance: idle, or with one that began then."""

    client: WorkerClient
    type: InstanceType
    number: int
    idle: bool = True
    began: float = 0.0
    predicted_s: float = 0.0
    dual: float = 0.0  # of the last decision, see `scheduler.dispatch.policy`

    @property
    def key(self) -> PlaceKey:
        """Its address and number."""
        return (self.client.address, self.number)

    @property
    def name(self) -> str:
        """Under which what it takes is learnt."""
        return self.type.name or self.client.address

    def busy_s(self, now: float) -> float:
        """Return the predicted seconds until it is free.

        What takes longer than predicted is taken to last as long again as it already did: with
        no seconds left it would look as good as an idle instance, and a request might be kept
        waiting for it beside one.
        """
        if self.idle:
            return 0.0
        elapsed = now - self.began
        left = self.predicted_s - elapsed
        return max(left if left > 0 else elapsed, _LEAST_BUSY_S)


@dataclass(slots=True, eq=False)
class Places:
    """All places of a tier, the base type's first. Used within one event loop."""

    prices: LearntPrices
    changed: Callable[[], None]  # is called when there is another place, or one is free
    fleet: Fleet = field(default_factory=partial(Fleet.alike, 0), init=False)
    _by_key: dict[PlaceKey, Place] = field(default_factory=dict, init=False)
    _recoveries: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def workers(self) -> int:
        """Number of instances."""
        return len({address for address, _ in self._by_key})

    def add(self, client: WorkerClient, type: InstanceType) -> None:
        """Take an instance into service."""
        self.remove(client.address)
        self._add(client, type, 0, type.places)

    def remove(self, address: str) -> None:
        """Take an instance out of service; what it has in hand goes on."""
        for key in [key for key in self._by_key if key[0] == address]:
            del self._by_key[key]
        self._order()

    def has(self, client: WorkerClient) -> bool:
        """Return whether an instance is in service by this very client."""
        return any(place.client is client for place in self)

    def grow(self, place: Place, concurrency: int) -> None:
        """Add places to an instance if it takes so many requests at once."""
        if self._by_key.get(place.key) is place:
            count = sum(address == place.client.address for address, _ in self._by_key)
            if concurrency > count:
                self._add(place.client, place.type, count, concurrency)

    def _add(self, client: WorkerClient, type: InstanceType, first: int, end: int) -> None:
        for number in range(first, end):
            self._by_key[client.address, number] = Place(client, type, number)
        self._order()
        self.changed()

    def _order(self) -> None:
        price = {key: self.prices.of(p.name) or p.type.price for key, p in self._by_key.items()}
        ordered = sorted(self._by_key.items(), key=lambda item: price[item[0]].kind)
        self._by_key = dict(ordered)
        prices = [price[key] for key in self._by_key]
        self.fleet = Fleet(
            np.array([each.kind for each in prices], dtype=np.int64),
            np.array([each.coefficient for each in prices]),
            np.array([each.price for each in prices]),
        )

    def update_prices(self) -> None:
        """Work the prices of types out anew, and put places in their order."""
        if self.prices.update(Counter(place.name for place in self)):
            self._order()

    def free(self, place: Place) -> None:
        """Mark a place as free for its next request."""
        place.idle = True
        self.changed()

    def leave_alone(self, address: str) -> None:
        """Use no place of an instance that was lost until it answers again."""
        for place in self:
            if place.idle and place.key[0] == address:
                place.idle = False
                self.recover(place)

    def recover(self, place: Place) -> None:
        """Free a place once its instance has settled."""
        task = asyncio.get_running_loop().create_task(self._settle(place))
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)

    async def _settle(self, place: Place) -> None:
        while self._by_key.get(place.key) is place:
            try:
                await place.client.settle(timeout_s=_SETTLE_S)
            except Unavailable:
                await asyncio.sleep(_RECOVERY_PAUSE_S)
            else:
                self.free(place)
                return

    async def close(self) -> None:
        """Take all out of service and stop looking after them."""
        self._by_key.clear()
        for task in self._recoveries:
            task.cancel()
        await asyncio.gather(*self._recoveries, return_exceptions=True)
