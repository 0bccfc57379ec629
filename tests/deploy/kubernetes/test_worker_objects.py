"""The objects of an instance: valid names, the worker's own command line, what it may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.kubernetes.pod_template import PodTemplate
from circinus.deploy.kubernetes.pods import (
    RenderSettings,
    WorkerGroup,
    deployment_spec,
    name_of,
    tier_budget,
    worker_objects,
)
from circinus.deploy.kubernetes.resources import MachineShape, quantity
from circinus.deploy.runtime.instances import ExtraReplica, InstanceKey, InstanceSpec, instances_of
from circinus.deploy.workers.options import parse
from circinus.deploy.workers.shares import Enforcement
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import MachineType, Tier
from tests.deploy.serving import desired, plan, tiny

SHAPE = RenderSettings(
    namespace="ns", image="worker:1", tls_secret="tls", machine=MachineShape(cpu="2")
)
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def spec(share: float = 1.0, tier: Tier | None = None) -> InstanceSpec:
    graph = tiny("echo").graph
    return InstanceSpec(
        key=InstanceKey("q-1", "p-1", "cloud", 0),
        pipeline_reference="digits",
        operators=graph.operators,
        configuration=ConfigurationSpace(graph).parse({}),
        tier=tier or Tier(name="cloud"),
        share=share,
    )


@given(st.text(), st.text(), st.text(), st.integers(0, 999))
def test_any_key_has_a_name_that_a_service_may_have(q: str, p: str, tier: str, n: int) -> None:
    assert DNS_LABEL.fullmatch(name_of(InstanceKey(q, p, tier, n)))


def test_unlike_keys_have_unlike_names_and_equal_ones_equal_names() -> None:
    keys = [InstanceKey(q, "p", t, n) for q in "ab" for t in ("x", "y") for n in range(3)]
    assert len({name_of(key) for key in keys}) == len(keys)
    assert worker_objects(spec(), SHAPE) == worker_objects(spec(), SHAPE)


def test_the_worker_reads_its_arguments() -> None:
    tier = Tier(name="cloud", speed_factor=0.5, emulated=True)
    _, deployment = worker_objects(spec(0.25, tier), SHAPE)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    options = parse(container["args"])
    assert options.bind.endswith(f":{container['ports'][0]['containerPort']}")
    assert options.health is not None
    assert options.health.endswith(f":{container['readinessProbe']['grpc']['port']}")
    assert (options.pace.share, options.pace.speed) == (0.25, 0.5)
    assert options.pace.enforcement is Enforcement.DUTY_CYCLE
    assert options.tls is not None
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(options.tls.key.parent) in mounts


@pytest.mark.parametrize(("share", "cpu"), [(1.0, "2"), (0.25, "500m"), (0.05, "100m")])
def test_a_share_of_a_machine_is_requested(share: float, cpu: str) -> None:
    _, deployment = worker_objects(spec(share), SHAPE)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"]["cpu"] == cpu
    assert "cpu" not in container["resources"]["limits"]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20))
def test_shares_that_fit_on_a_machine_ask_for_no_more_than_it_has(steps: list[int]) -> None:
    shares: list[int] = []
    for step in steps:
        if sum(shares) + step * 5 <= 100:
            shares.append(step * 5)
    asked = Decimal(0)
    for share in shares:
        _, deployment = worker_objects(spec(round(share / 100, 9)), SHAPE)
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        asked += quantity(container["resources"]["requests"]["cpu"])
    assert asked <= 2


def test_a_worker_runs_without_any_right() -> None:
    _, deployment = worker_objects(spec(), SHAPE)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    own = pod["containers"][0]["securityContext"]
    assert own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not own["allowPrivilegeEscalation"]


def test_the_service_finds_exactly_the_pods_of_its_deployment() -> None:
    service, deployment = worker_objects(spec(), SHAPE)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert service["spec"]["clusterIP"] == "None"


def test_an_instance_runs_on_nodes_of_its_tier_and_type_alone() -> None:
    def nodes(key: InstanceKey) -> object:
        _, deployment = worker_objects(replace(spec(), key=key), SHAPE)
        return deployment["spec"]["template"]["spec"]["nodeSelector"]

    alike, large = spec().key, spec().key._replace(machine_type="large")
    assert nodes(alike) == {"circinus.io/tier": "cloud"}
    assert nodes(large) == {"circinus.io/tier": "cloud", "circinus.io/machine-type": "large"}
    assert name_of(alike) != name_of(large)


def test_pods_of_a_pool_run_on_nodes_of_the_types_chosen() -> None:
    types = (MachineType(name="small"), MachineType(name="large"))
    tiers = Infrastructure(name="unlike", tiers=(Tier(name="cloud", types=types),))
    pool = tuple(ExtraReplica("cloud", kind) for kind in ("small", "small", "large"))
    wanted = replace(desired("nap", plan("nap")), machine_types=(None,), pool=pool)
    found = instances_of("q-1", wanted, tiny("nap").graph, tiers)
    made = [worker_objects(each, SHAPE)[1] for each in found.values()]
    nodes = [each["spec"]["template"]["spec"]["nodeSelector"] for each in made]
    assert [n["circinus.io/machine-type"] for n in nodes] == ["small", "small", "large"]
    assert len({each["metadata"]["name"] for each in made}) == 3


def test_pods_of_both_ways_are_alike_but_for_who_keeps_them_to_their_share() -> None:
    mine = spec(0.25)
    _, deployment = worker_objects(mine, SHAPE)
    grouped = deployment_spec(WorkerGroup(spec=mine, own={"o": "1"}, limited=True), SHAPE)
    one, other = deployment["spec"]["template"]["spec"], grouped["template"]["spec"]
    for pod in (one, other):
        container = pod["containers"][0]
        assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 3}}}
        assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
        assert {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]
        # They have these of necessity: a limit slows the start, and says who keeps to the share.
        for name in ("args", "resources", "startupProbe"):
            del container[name]
    assert one == other


def test_the_workers_of_a_tier_share_a_budget_that_counts_all_of_them_and_no_others() -> None:
    first, second = spec(), replace(spec(), key=spec().key._replace(replica=1))
    other = replace(spec(), key=spec().key._replace(plan_id="p-2"))
    budget = tier_budget(first, SHAPE)
    assert budget == tier_budget(second, SHAPE) != tier_budget(other, SHAPE)
    chosen = budget["spec"]["selector"]["matchLabels"].items()

    def labels(of: InstanceSpec) -> Mapping[str, str]:
        _, deployment = worker_objects(of, SHAPE)
        found: Mapping[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
        return found

    assert budget["spec"]["maxUnavailable"] == 1
    assert [chosen <= labels(each).items() for each in (first, second, other)] == [
        True,
        True,
        False,
    ]


def test_a_name_tells_query_and_tier() -> None:
    assert re.fullmatch(r"cq-q-1-cloud-[0-9a-f]{10}", name_of(spec().key))


def test_the_users_template_is_in_every_pod() -> None:
    template = PodTemplate({"spec": {"priorityClassName": "high"}})
    _, deployment = worker_objects(spec(), replace(SHAPE, template=template))
    assert deployment["spec"]["template"]["spec"]["priorityClassName"] == "high"


def test_an_environment_is_mounted_for_reading_only() -> None:
    shape = RenderSettings(
        namespace="n", image="i:1", tls_secret="t", environment=str(Path("/env"))
    )
    _, deployment = worker_objects(spec(), shape)
    pod = deployment["spec"]["template"]["spec"]
    mount = next(m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "environment")
    assert mount["readOnly"]
    volume = next(v for v in pod["volumes"] if v["name"] == "environment")
    assert volume["hostPath"] == {"path": "/env", "type": "Directory"}
