"""A query's own device: as fast as it is, and on the connection that it has.

The infrastructure says what a device is like; of the tier where requests start every user
has their own, and no two are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipelines import checks
from pipelines.infrastructure import Infrastructure, Link, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """What a query's device is like; what is None is as the infrastructure says.

    Attributes:
        speed_factor: How many times as fast as the reference machine, `> 0`.
        bandwidth_bytes_per_s: Of its links, `> 0`.
        delay_s: Of its links, `>= 0`.
    """

    speed_factor: float | None = None
    bandwidth_bytes_per_s: float | None = None
    delay_s: float | None = None

    def __post_init__(self) -> None:
        if self.speed_factor is not None:
            checks.positive("device.speed_factor", self.speed_factor)
        if self.bandwidth_bytes_per_s is not None:
            checks.positive("device.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        if self.delay_s is not None:
            checks.non_negative("device.delay_s", self.delay_s)


def with_device(infrastructure: Infrastructure, device: DeviceProfile | None) -> Infrastructure:
    """Give the infrastructure as a query with that device sees it; None: as it is.

    Raises:
        InvalidInput: If requests do not start on a device: its tier is not dedicated.
    """
    if device is None:
        return infrastructure
    origin = infrastructure.tier(infrastructure.origin or "")
    rule = "must be left out: the tier where requests start is shared by all queries"
    checks.require(origin.dedicated, "device", rule, origin.name)
    return replace(
        infrastructure,
        tiers=tuple(_own(t, device) if t is origin else t for t in infrastructure.tiers),
        links=tuple(
            _connected(link, device) if origin.name in link.between else link
            for link in infrastructure.links
        ),
    )


def _own(tier: Tier, device: DeviceProfile) -> Tier:
    speed = device.speed_factor
    return tier if speed is None else replace(tier, speed_factor=speed)


def _connected(link: Link, device: DeviceProfile) -> Link:
    bandwidth, delay = device.bandwidth_bytes_per_s, device.delay_s
    return replace(
        link,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s if bandwidth is None else bandwidth,
        delay_s=link.delay_s if delay is None else delay,
    )
