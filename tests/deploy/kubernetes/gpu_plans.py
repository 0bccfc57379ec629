"""Random nodes with GPUs of all kinds, and plans that the schedule puts onto them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from circinus.deploy.kubernetes.manifests import ScheduledPlan
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Tier
from tests.deploy.kubernetes.device_plugin import PluginConfiguration
from tests.deploy.scheduled_plans import NAMES, scheduled_chain

PLACES = (1, 2, 3, 4, 5, 6, 10, 20)
PROFILES = ("1g.5gb", "1g.10gb+me", "2g.20gb", "3g.40gb")
SHARED_TIERS = ("edge", "cloud")
STEPS = 20  # of a machine


@dataclass(frozen=True)
class Cluster:
    """Nodes as their plug-ins offer them, and what an infrastructure file says of them."""

    infrastructure: Infrastructure
    plugins: dict[str, PluginConfiguration | None]  # by pool, `TIER` or `TIER/TYPE`


@st.composite
def divided(draw: st.DrawFn, places: int) -> PluginConfiguration:
    """Any way in which a node holds so many workers."""
    gpus = draw(st.sampled_from([n for n in range(1, places + 1) if places % n == 0]))
    kind = draw(st.sampled_from(["mig", "mps", "timeSlicing"] if places > gpus else ["mig"]))
    if kind == "mig":
        return PluginConfiguration(
            gpus=gpus,
            devices=places // gpus,
            mig=draw(st.sampled_from(PROFILES)).replace("+", "."),
            mig_strategy=draw(st.sampled_from(["single", "mixed"])),
        )
    return PluginConfiguration(
        gpus=gpus,
        sharing=kind,
        replicas=places // gpus,
        rename_by_default=draw(st.booleans()),
        fail_requests_greater_than_one=draw(st.booleans()),
    )


def told(plugin: PluginConfiguration) -> dict[str, Any]:
    """What an infrastructure file says of such nodes; the resource where it is not the usual."""
    if plugin.sharing is not None:
        kind = {"mps": "mps", "timeSlicing": "time-sliced"}[plugin.sharing]
        usual = {} if plugin.rename_by_default else {"resource": plugin.resource}
        return {"kind": kind, "count": plugin.gpus, "parts": plugin.replicas, **usual}
    if plugin.mig is None:
        return {"kind": "whole", "count": plugin.gpus}
    profile = {"profile": plugin.mig.replace(".me", "+me")}
    single = {"resource": plugin.resource} if plugin.mig_strategy == "single" else {}
    return {"kind": "mig", "count": plugin.physical, **profile, **single}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A device, and two tiers of like nodes or of two types, with GPUs of any kind or without."""
    plugins: dict[str, PluginConfiguration | None] = {"device": None}
    tiers: list[dict[str, Any]] = [{"name": "device", "dedicated": True}]
    for name in SHARED_TIERS:
        whole = draw(st.booleans())
        places = draw(st.sampled_from(PLACES))

        def machines(places: int = places, *, whole: bool = whole) -> dict[str, Any]:
            made = (
                st.integers(1, 8).map(lambda gpus: PluginConfiguration(gpus=gpus))
                if whole
                else divided(places)
            )
            plugin = draw(st.one_of(made, made, made, st.none()))
            given = {} if plugin is None else {"gpus": told(plugin)}
            return {"machines": draw(st.integers(1, 3)), **given, "plugin": plugin}

        kinds: list[str | None] = ["a", "b"] if draw(st.booleans()) else [None]
        described = []
        for kind in kinds:
            one = machines()
            plugins[name if kind is None else f"{name}/{kind}"] = one.pop("plugin")
            described.append({"name": kind or name, **one})
        tiers.append({"name": name, "types": described} if len(kinds) > 1 else described[0])
    links = [("device", "edge"), ("edge", "cloud")]
    document = {
        "name": "gpus",
        "tiers": tiers,
        "links": [{"between": list(pair), "bandwidth_mbit_per_s": 8} for pair in links],
    }
    return Cluster(infrastructure_from_dict(document), plugins)


@st.composite
def gpu_plans(draw: st.DrawFn) -> tuple[Cluster, list[ScheduledPlan]]:
    """Plans of two queries whose slices together fit the machines, often filling them."""
    cluster = draw(clusters())
    left = {
        (tier.name, machine): STEPS
        for tier in cluster.infrastructure.tiers
        for machine in range(tier.machines)
    }
    plans = []
    for number in range(2):
        plan = draw(_scheduled(f"q{number}-{draw(NAMES)}"[:60], cluster.infrastructure, left))
        plans += [] if plan is None else [plan]
    return cluster, plans


@st.composite
def _scheduled(
    draw: st.DrawFn,
    query_id: str,
    infrastructure: Infrastructure,
    left: dict[tuple[str, int], int],
) -> ScheduledPlan | None:
    shares, machines = dict[str, int](), dict[str, list[int]]()
    for name in SHARED_TIERS:
        tier = infrastructure.tier(name)
        share = draw(st.sampled_from(tier.share_steps or range(1, STEPS + 1)))
        slots = [
            machine
            for (of, machine), room in left.items()
            if of == name
            for _ in range(room // share)
        ]
        if slots:
            shares[name] = share
            count = draw(st.integers(1, len(slots)))
            machines[name] = draw(st.permutations(slots))[:count]
    placement = draw(st.lists(st.sampled_from(["device", *shares]), min_size=1, max_size=4))
    for name in set(placement) - {"device"}:
        for machine, count in Counter(machines[name]).items():
            left[name, machine] -= count * shares[name]
    found = scheduled_chain(
        query_id,
        placement,
        shares={name: round(share * 0.05, 9) for name, share in shares.items()},
        replicas={name: len(where) for name, where in machines.items()},
        machines=machines,
    )
    types = tuple(infrastructure.machine_type(each.tier, each.machine) for each in found.slices)
    return replace(found, infrastructure=infrastructure, machine_types=types)


def pool_of(tier: Tier, machine: int) -> str:
    """The pool of a machine, as `Cluster.plugins` names it."""
    kind = tier.type_of(machine)
    return tier.name if kind is None else f"{tier.name}/{kind.name}"
