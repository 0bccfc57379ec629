"""What workers ask of GPUs, beside a model of the plug-in that hands them out."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.manifests import ScheduledPlan, render
from circinus.deploy.kubernetes.names import MACHINE, MACHINE_TYPE, TIER
from circinus.deploy.kubernetes.pod_template import PodTemplate
from circinus.deploy.kubernetes.pods import Pinning, RenderSettings, worker_objects
from circinus.deploy.kubernetes.resources import device_resources, pool_requirements, quantity
from circinus.deploy.runtime.instances import instances_of
from circinus.deploy.workers.options import parse
from circinus.deploy.workers.shares import Enforcement
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.shares import Gpus, GpuSharing
from circinus.pipelines.model.tiers import MachineType, Tier
from tests.deploy.kubernetes.device_plugin import (
    Client,
    GpuNode,
    NotAdmittedError,
    PluginConfiguration,
)
from tests.deploy.kubernetes.gpu_plans import Cluster, gpu_plans, pool_of
from tests.deploy.pod_templates import TEMPLATES
from tests.deploy.scheduled_plans import scheduled_chain
from tests.deploy.valid_objects import assert_valid

EIGHT = Gpus(kind=GpuSharing.WHOLE, count=8)
TENTHS = Gpus(kind=GpuSharing.MPS, parts=10)
TURNS = Gpus(kind=GpuSharing.TIME_SLICED, parts=4)
SLICES = Gpus(kind=GpuSharing.MIG, count=3, profile="2g.20gb")


def on(gpus: Gpus | None, share: float) -> ScheduledPlan:
    """A plan of one operator with a share of a tier `edge` with these GPUs."""
    tiers = Infrastructure(name="one", tiers=(Tier(name="edge", gpus=gpus),))
    return replace(scheduled_chain("q", ["edge"], shares={"edge": share}), infrastructure=tiers)


def deployments(scheduled: ScheduledPlan) -> tuple[Object, Object]:
    """That of a plan by hand, and that of the service."""
    by_hand = [d for d in render(scheduled, RenderSettings()).objects if d["kind"] == "Deployment"]
    (spec,) = instances_of("q", scheduled, scheduled.graph, scheduled.infrastructure).values()
    _, own = worker_objects(spec, RenderSettings())
    return by_hand[0], own


def container_of(deployment: Object) -> Object:
    found: Object
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def asked_of(container: Object) -> dict[str, int]:
    """The extended resources of a container, requested and limited alike."""
    told = [
        {name: value for name, value in container["resources"][of].items() if "/" in name}
        for of in ("requests", "limits")
    ]
    assert told[0] == told[1]
    return {name: int(value) for name, value in told[0].items()}


def variables_of(container: Object) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", [])}


# --- What is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "share", "message"),
    [
        # 1.6 GPUs
        (EIGHT, 0.2, r"a machine's 8 GPUs \(whole\) give: 0\.25, 0\.5, 0\.75, 1"),
        (TENTHS, 0.5, r"a machine's 1 GPU in 10 parts each \(mps\) give: 0\.1, got 0\.5"),
        (TENTHS, 0.05, r"give: 0\.1, got 0\.05"),
        (TURNS, 0.5, r"1 GPU in 4 parts each \(time-sliced\) give: 0\.25, got 0\.5"),
        (SLICES, 0.35, r"3 MIG devices \(mig\) give: 0\.3, got 0\.35"),
    ],
)
def test_a_share_that_gpus_do_not_give_is_refused_on_both_ways(
    gpus: Gpus, share: float, message: str
) -> None:
    plan = on(gpus, share)
    with pytest.raises(InvalidInput, match=f"share on edge must be one that.*{message}"):
        render(plan, RenderSettings())
    (spec,) = instances_of("q", plan, plan.graph, plan.infrastructure).values()
    with pytest.raises(InvalidInput, match=message):
        worker_objects(spec, RenderSettings())


def test_unlike_types_need_a_schedule_that_says_which() -> None:
    types = (MachineType(name="a", gpus=TENTHS), MachineType(name="b"))
    with pytest.raises(InvalidInput, match=r"share on gpu must be of a machine of one type"):
        device_resources(Tier(name="gpu", types=types), 0.1)


# --- What is asked for ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "share", "asked", "env"),
    [
        (None, 0.3, {}, {}),
        (EIGHT, 0.25, {"nvidia.com/gpu": 2}, {}),
        (EIGHT, 1.0, {"nvidia.com/gpu": 8}, {}),
        (SLICES, 0.3, {"nvidia.com/mig-2g.20gb": 1}, {}),
        (TURNS, 0.25, {"nvidia.com/gpu.shared": 1}, {}),
        (TENTHS, 0.1, {"nvidia.com/gpu.shared": 1}, {"10"}),
        # A tenth of two GPUs is a fifth of one; 0.15 of two in three parts is 0.3 of one.
        (replace(TENTHS, count=2, parts=5), 0.1, {"nvidia.com/gpu.shared": 1}, {"20"}),
        (replace(TENTHS, count=2, parts=3), 0.15, {"nvidia.com/gpu.shared": 1}, {"30"}),
    ],
)
def test_both_ways_ask_for_the_same(
    gpus: Gpus | None, share: float, asked: dict[str, int], env: set[str]
) -> None:
    for deployment in deployments(on(gpus, share)):
        assert_valid({**deployment, "metadata": {"name": "x"}})
        container = container_of(deployment)
        assert asked_of(container) == asked
        assert {*variables_of(container).values()} == {*env}


def test_a_node_is_a_machine_if_it_gives_what_is_told_of_one() -> None:
    types = (MachineType(name="a", cores=2.5, gpus=TENTHS), MachineType(name="b", memory_gib=1.5))
    tiers = (Tier(name="device"), Tier(name="edge", types=types), Tier(name="gpu", gpus=SLICES))
    ends = ("device", "edge"), ("edge", "gpu")
    links = tuple(Link(between=pair, bandwidth_bytes_per_s=1.0) for pair in ends)

    assert pool_requirements(Infrastructure(name="i", tiers=tiers, links=links)) == {
        "device": {},
        "edge/a": {"cpu": "2500m", "nvidia.com/gpu.shared": "10"},
        "edge/b": {"memory": "1536Mi"},
        "gpu": {"nvidia.com/mig-2g.20gb": "3"},
    }


def test_a_worker_asks_for_its_share_of_a_machine_of_its_own_tier_or_type() -> None:
    def asked(
        machine_type: str | None, *types: MachineType, **tier: float
    ) -> list[dict[str, str]]:
        tiers = Infrastructure(name="one", tiers=(Tier(name="edge", types=types, **tier),))  # type: ignore[arg-type]  # figures
        plan = replace(on(None, 0.25), infrastructure=tiers, machine_types=(machine_type,))
        return [container_of(each)["resources"]["requests"] for each in deployments(plan)]

    for told in asked(None, cores=6.0, memory_gib=16.0):
        assert (quantity(told["cpu"]), quantity(told["memory"])) == (
            Decimal("1.5"),
            Decimal(4 * 2**30),
        )
    types = (MachineType(name="a", cores=4.0), MachineType(name="b", memory_gib=1.0))
    for told in asked("a", *types):  # 0.25 of the 2Gi of machines elsewhere
        assert (quantity(told["cpu"]), quantity(told["memory"])) == (Decimal(1), Decimal(2**29))
    for told in asked("b", *types):
        assert (quantity(told["cpu"]), quantity(told["memory"])) == (
            Decimal("0.25"),
            Decimal(2**28),
        )


@pytest.mark.parametrize(
    ("gpus", "share", "expected"),
    [
        (EIGHT, 1.0, Enforcement.NONE),
        (EIGHT, 0.25, Enforcement.DEVICE),
        (SLICES, 0.3, Enforcement.DEVICE),
        (TENTHS, 0.1, Enforcement.DEVICE),
        (TURNS, 0.25, Enforcement.DUTY_CYCLE),
    ],
)
def test_only_who_takes_turns_waits_for_its_share_itself(
    gpus: Gpus, share: float, expected: Enforcement
) -> None:
    _, own = deployments(on(gpus, share))
    assert parse(container_of(own)["args"]).pace.enforcement is expected


# --- Beside the plug-in --------------------------------------------------------------


@pytest.mark.parametrize("places", range(1, 25))
@pytest.mark.parametrize("kind", [GpuSharing.MIG, GpuSharing.MPS, GpuSharing.TIME_SLICED])
def test_the_share_of_a_place_is_the_largest_that_the_plug_in_gives_to_a_full_machine(
    kind: GpuSharing, places: int
) -> None:
    if kind is not GpuSharing.MIG and places == 1:
        return
    plugin = {
        GpuSharing.MIG: PluginConfiguration(gpus=1, devices=places, mig="1g.5gb"),
        GpuSharing.MPS: PluginConfiguration(gpus=1, replicas=places, sharing="mps"),
        GpuSharing.TIME_SLICED: PluginConfiguration(
            gpus=1, replicas=places, sharing="timeSlicing"
        ),
    }[kind]
    good = [step for step in range(1, 21) if _fills(plugin, step)]
    shape = {"count": places} if kind is GpuSharing.MIG else {"parts": places}
    if not good:
        with pytest.raises(InvalidInput, match="places with"):
            Gpus(kind=kind, resource=plugin.resource, **shape)  # type: ignore[arg-type]  # by kind
    else:
        found = Gpus(kind=kind, resource=plugin.resource, **shape)  # type: ignore[arg-type]  # by kind
        assert found.steps == (max(good),)


def _fills(plugin: PluginConfiguration, step: int) -> bool:
    """Whether as many workers as a machine has shares are admitted, each with its share."""
    node = GpuNode(plugin)
    try:
        clients = [node.admit(plugin.resource, 1, {}) for _ in range(20 // step)]
    except NotAdmittedError:
        return False
    return all(client.compute >= Fraction(step, 20) for client in clients)


@pytest.mark.parametrize("gpus", range(1, 13))
def test_whole_gpus_give_the_shares_that_are_whole_gpus(gpus: int) -> None:
    expected = [step for step in range(1, 21) if Fraction(step * gpus, 20).denominator == 1]
    assert list(Gpus(kind=GpuSharing.WHOLE, count=gpus).steps) == expected


Asked = tuple[Fraction, Object]  # a slice's share, and the container that serves it


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gpu_plans(), st.sampled_from(Pinning), TEMPLATES)
def test_some_plans_get_what_the_schedule_grants_and_no_more(
    drawn: tuple[Cluster, list[ScheduledPlan]], pinning: Pinning, template: PodTemplate
) -> None:
    assert_granted(*drawn, RenderSettings(pinning=pinning, template=template))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gpu_plans(), st.sampled_from(Pinning), TEMPLATES)
def test_two_hundred_plans_get_what_the_schedule_grants_and_no_more(
    drawn: tuple[Cluster, list[ScheduledPlan]], pinning: Pinning, template: PodTemplate
) -> None:
    assert_granted(*drawn, RenderSettings(pinning=pinning, template=template))


def assert_granted(cluster: Cluster, plans: list[ScheduledPlan], chosen: RenderSettings) -> None:
    """Put the pods of both ways onto the scheduled nodes, and see what their plug-ins say."""
    tiers = cluster.infrastructure
    ways: list[dict[tuple[str, int], list[Asked]]] = [defaultdict(list), defaultdict(list)]
    for scheduled in plans:
        found = render(scheduled, chosen).objects
        for document in found:
            assert_valid(document)
        _place(scheduled, [d for d in found if d["kind"] == "Deployment"], ways[0])
        own = []
        for spec in instances_of("q", scheduled, scheduled.graph, tiers).values():
            for document in worker_objects(spec, chosen):
                if spec.key.replica == 0:  # others have another name, and nothing else
                    assert_valid(document)
                own += [document] if document["kind"] == "Deployment" else []
        _place(scheduled, own, ways[1])
    for placed in ways:
        for (name, machine), pods in placed.items():
            _assert_admitted(cluster.plugins[pool_of(tiers.tier(name), machine)], pods)


def _place(
    scheduled: ScheduledPlan,
    found: list[Object],
    placed: dict[tuple[str, int], list[Asked]],
) -> None:
    """Put each replica onto the machine of a slice that its node labels allow."""
    left = [*zip(scheduled.slices, scheduled.machine_types, strict=True)]
    for deployment in found:
        wanted = _labels(deployment)
        for _ in range(deployment["spec"].get("replicas", 1)):
            mine = next(
                (each, kind)
                for each, kind in left
                if wanted[TIER] == each.tier
                and wanted.get(MACHINE_TYPE) == kind
                and wanted.get(MACHINE, str(each.machine)) == str(each.machine)
            )
            left.remove(mine)
            at, _ = mine
            share = Fraction(round(at.share * 20), 20)
            placed[at.tier, at.machine].append((share, container_of(deployment)))
    assert not left


def _labels(deployment: Object) -> dict[str, str]:
    pod = deployment["spec"]["template"]["spec"]
    if "nodeSelector" in pod:
        return dict(pod["nodeSelector"])
    rules = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = rules["nodeSelectorTerms"]
    return {each["key"]: each["values"][0] for each in term["matchExpressions"]}


def _assert_admitted(plugin: PluginConfiguration | None, pods: list[Asked]) -> None:
    if plugin is None:
        assert all(not asked_of(container) for _, container in pods)
        return
    node, clients = GpuNode(plugin), list[tuple[Fraction, Client]]()
    for share, container in pods:
        ((resource, number),) = asked_of(container).items()
        clients.append((share, node.admit(resource, number, variables_of(container))))
    assert sum(client.compute for _, client in clients) <= 1
    for share, client in clients:
        assert client.compute >= share
        if plugin.sharing == "mps":  # the only one whose parts can be made smaller
            assert client.compute == share
            assert client.memory >= share
        if plugin.sharing is None and plugin.mig is None:
            assert client.compute == share
