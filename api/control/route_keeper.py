"""Lets the routes be served that are in the store, and again where whoever serves them is new.

Ticked by the service in a loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from circinus.api.use_cases.deployer import Deployer, DesiredRoute
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.served_routes import desired_routes


@dataclass(slots=True, kw_only=True)
class RouteKeeper:
    """Makes routes that are served follow the store. Used within one event loop."""

    parts: ServiceParts
    deployer: Deployer
    _applied: Mapping[str, DesiredRoute] = field(default_factory=dict, init=False)
    _generation: int | None = field(default=None, init=False)  # None: nothing was said yet

    async def tick(self) -> None:
        """Look once; act if something changed."""
        wanted = await asyncio.to_thread(desired_routes, self.parts)
        generation = self.deployer.generation
        if wanted == self._applied and generation == self._generation:
            return
        await self.deployer.apply_routes(wanted)
        self._applied, self._generation = wanted, generation
