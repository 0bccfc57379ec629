"""The network that this computer imitates, apart from the one that is planned for.

Emulated links are waits. Here they are made longer or shorter while plans are deployed, and
nobody who plans hears of it: so what a drift of the network does is tried out. Not
remembered: a service starts with the links that its infrastructure states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from api.services.deployer import Deployer
from pipelines.errors import InvalidInput
from pipelines.infrastructure import Infrastructure, Link


@dataclass(slots=True, kw_only=True)
class Emulation:
    """The links that are imitated. Used within the event loop of the deployer.

    Attributes:
        stated: The infrastructure that is planned for.
        deployer: Waits for links.
    """

    stated: Infrastructure
    deployer: Deployer
    _now: Infrastructure | None = field(default=None, init=False)

    def now(self) -> Infrastructure:
        """Give the infrastructure with the links that are imitated."""
        return self._now or self.stated

    def set_links(self, links: Sequence[Link]) -> Infrastructure:
        """Imitate other links from now on; those left out stay as they are.

        Raises:
            InvalidInput: If a link does not exist, or is the network's own; nothing was changed.
        """
        told = {frozenset(link.between): link for link in links}
        emulated = {frozenset(link.between) for link in self.stated.links if link.emulated}
        for ends, link in told.items():
            if ends not in emulated:
                names = ", ".join("-".join(x.between) for x in self.stated.links if x.emulated)
                rule = f"must name emulated links ({names or 'there are none'})"
                raise InvalidInput.of("links", rule, "-".join(link.between))
        here = self.now()
        changed = tuple(
            replace(told.get(frozenset(link.between), link), emulated=link.emulated)
            for link in here.links
        )
        self._now = replace(here, links=changed)
        self.deployer.imitate(self._now)
        return self._now
