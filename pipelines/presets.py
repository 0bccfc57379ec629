"""Infrastructures ready to use: the paper's, and one that this computer can stand for.

The paper (Circinus, appendix A.2) gives tiers, GPUs and bandwidths; the prices and
speed factors below are orientation, to be replaced by `circinus calibrate` and the
operator's own price list:

- prices: one machine with its GPU, Google Cloud's on-demand list prices, rounded;
- speed: relative to the A100 as reference, from the GPUs' half-precision throughput ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pipelines.infrastructure import Infrastructure, Link, Tier

_MBIT = 1e6 / 8  # bytes per second
_WIFI = 50 * _MBIT  # device to the first cluster
_WAN = 400 * _MBIT  # edge cluster to cloud
_CLUSTER = 3000 * _MBIT  # within a cluster

_DEVICE = Tier(name="device", machines=1, price_usd_per_hour=0.0, speed_factor=0.1, dedicated=True)
_NEAR_EDGE = Tier(name="near-edge", machines=8, price_usd_per_hour=0.75, speed_factor=0.2)
_MEC = Tier(name="mec", machines=8, price_usd_per_hour=2.5, speed_factor=0.4)
_CLOUD = Tier(name="cloud", machines=8, price_usd_per_hour=3.7, speed_factor=1.0)

_ONE_TIER = Infrastructure(name="one-tier", tiers=(_CLOUD,))
_THREE_TIER = Infrastructure(
    name="three-tier",
    tiers=(_DEVICE, _MEC, _CLOUD),
    links=(
        Link(between=("device", "mec"), bandwidth_bytes_per_s=_WIFI, delay_s=0.002),
        Link(between=("mec", "cloud"), bandwidth_bytes_per_s=_WAN, delay_s=0.01),
    ),
)
_FOUR_TIER = Infrastructure(
    name="four-tier",
    tiers=(_DEVICE, _NEAR_EDGE, _MEC, _CLOUD),
    links=(
        Link(between=("device", "near-edge"), bandwidth_bytes_per_s=_WIFI, delay_s=0.002),
        Link(between=("near-edge", "mec"), bandwidth_bytes_per_s=_CLUSTER, delay_s=0.0005),
        Link(between=("mec", "cloud"), bandwidth_bytes_per_s=_WAN, delay_s=0.01),
    ),
)
# What a call of a local worker costs on two shared cores: 1 to 2 ms with 86 kB of input, 30 to 50
# with 6 MB, which are copied several times on their way. Waiting stretches operators, not calls,
# so a slow tier is charged less for one.
_CALL_S = 0.001
_CALL_S_PER_BYTE = 6e-9
_LOCAL = Infrastructure(
    name="local",
    tiers=(
        Tier(
            name="device",
            machines=1,
            speed_factor=0.25,
            dedicated=True,
            emulated=True,
            call_s=_CALL_S * 0.25,
            call_s_per_byte=_CALL_S_PER_BYTE * 0.25,
        ),
        Tier(
            name="edge",
            machines=2,
            price_usd_per_hour=0.1,
            speed_factor=0.5,
            emulated=True,
            call_s=_CALL_S * 0.5,
            call_s_per_byte=_CALL_S_PER_BYTE * 0.5,
        ),
        Tier(
            name="cloud",
            machines=2,
            price_usd_per_hour=0.4,
            speed_factor=1.0,
            call_s=_CALL_S,
            call_s_per_byte=_CALL_S_PER_BYTE,
        ),
    ),
    links=(
        Link(
            between=("device", "edge"), bandwidth_bytes_per_s=_WIFI, delay_s=0.002, emulated=True
        ),
        Link(between=("edge", "cloud"), bandwidth_bytes_per_s=_WAN, delay_s=0.005, emulated=True),
    ),
)

PRESETS: Mapping[str, Infrastructure] = MappingProxyType(
    {preset.name: preset for preset in (_LOCAL, _ONE_TIER, _THREE_TIER, _FOUR_TIER)}
)
"""By name: `local` (the default; this computer, slower tiers and links emulated by waiting), and
the paper's `one-tier`, `three-tier`, `four-tier`."""
