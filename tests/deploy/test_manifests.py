from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.manifests import SERVING, ScheduledPlan, helm_values, render
from circinus.deploy.kubernetes.names import (
    CONTENT,
    MACHINE,
    MACHINE_TYPE,
    PLAN,
    QUERY,
    ROLE,
    TIER,
    content_hash,
    label_value,
)
from circinus.deploy.kubernetes.pod_template import PodTemplate
from circinus.deploy.kubernetes.pods import Pinning, RenderSettings
from circinus.deploy.kubernetes.resources import MachineShape, quantity
from circinus.deploy.workers.options import parse
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.problem import Slice
from tests.deploy.pod_templates import TEMPLATES
from tests.deploy.read_back import as_planned, read_back
from tests.deploy.scheduled_plans import scheduled_chain, scheduled_plans
from tests.deploy.valid_objects import VERSIONS, assert_valid, validator

DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def test_the_schemas_refuse_what_they_do_not_know() -> None:
    found = render(scheduled_chain("q", ["edge"]), RenderSettings())
    (service,) = of_kind("Service", found.objects)
    wrong = {**service, "spec": {**service["spec"], "clusterip": "None"}}

    with pytest.raises(jsonschema.ValidationError, match="clusterip"):
        validator("Service", "v1", VERSIONS[-1]).validate(wrong)


def of_kind(kind: str, objects: tuple[Object, ...]) -> list[Object]:
    return [document for document in objects if document["kind"] == kind]


def nodes_of(deployment: Object) -> dict[str, str]:
    found: dict[str, str] = deployment["spec"]["template"]["spec"]["nodeSelector"]
    return found


def requests(deployment: Object) -> dict[str, Decimal]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    asked = container["resources"]["requests"]
    return {
        name: quantity(value) * deployment["spec"]["replicas"] for name, value in asked.items()
    }


# --- What is refused -----------------------------------------------------------------


def test_slices_that_are_not_the_plans_are_refused() -> None:
    good = scheduled_chain("q", ["edge"], shares={"edge": 0.5})

    with pytest.raises(InvalidInput, match="slices must be those of plan"):
        ScheduledPlan(
            query_id="q",
            pipeline_reference="digits",
            plan=good.plan,
            graph=good.graph,
            infrastructure=good.infrastructure,
            slices=(Slice("edge", 0, 0.4),),
        )


# --- What is rendered ----------------------------------------------------------------


def test_a_worker_is_bound_to_its_scheduled_machine() -> None:
    found = render(scheduled_chain("q", ["edge"], machines={"edge": [3]}), RenderSettings())
    (deployment,) = of_kind("Deployment", found.objects)

    assert nodes_of(deployment) == {TIER: "edge", MACHINE: "3"}


def test_a_worker_is_bound_to_its_tier_only_if_so_asked_or_the_tier_is_dedicated() -> None:
    loose = RenderSettings(pinning=Pinning.TIER)
    (edge,) = of_kind("Deployment", render(scheduled_chain("q", ["edge"]), loose).objects)
    (device,) = of_kind(
        "Deployment", render(scheduled_chain("q", ["device"]), RenderSettings()).objects
    )

    assert nodes_of(edge) == {TIER: "edge"}
    assert nodes_of(device) == {TIER: "device"}


def test_a_worker_on_a_machine_of_a_type_is_bound_to_the_type() -> None:
    unlike = Tier(name="edge", types=(MachineType(name="a", machines=2), MachineType(name="b")))
    asked = scheduled_chain(
        "q", ["edge"], shares={"edge": 0.3}, replicas={"edge": 3}, machines={"edge": [0, 1, 2]}
    )
    scheduled = replace(
        asked,
        infrastructure=Infrastructure(name="unlike", tiers=(unlike,)),
        machine_types=("a", "a", "b"),
    )
    deployments = of_kind("Deployment", render(scheduled, RenderSettings()).objects)

    assert [(nodes_of(d), d["spec"]["replicas"]) for d in deployments] == [
        ({TIER: "edge", MACHINE_TYPE: "a"}, 2),
        ({TIER: "edge", MACHINE_TYPE: "b"}, 1),
    ]
    assert len({d["metadata"]["name"] for d in deployments}) == 2


def test_replicas_on_one_machine_are_one_deployment() -> None:
    scheduled = scheduled_chain(
        "q", ["edge"], shares={"edge": 0.3}, replicas={"edge": 3}, machines={"edge": [1, 2, 1]}
    )
    deployments = of_kind("Deployment", render(scheduled, RenderSettings()).objects)

    assert {nodes_of(d)[MACHINE]: d["spec"]["replicas"] for d in deployments} == {
        "1": 2,
        "2": 1,
    }


def test_requests_and_limits_are_the_share_of_the_machine() -> None:
    shape = MachineShape(cpu="4", memory="8Gi")
    scheduled = scheduled_chain("q", ["edge"], shares={"edge": 0.3})
    (deployment,) = of_kind("Deployment", render(scheduled, RenderSettings(machine=shape)).objects)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    # 0.3 * 4 = 1.2 cores; 0.3 * 8192 Mi = 2457.6 Mi, rounded down.
    assert container["resources"] == {
        "requests": {"cpu": "1200m", "memory": "2457Mi"},
        "limits": {"cpu": "1200m", "memory": "8Gi"},
    }


def test_a_worker_may_do_nothing_but_serve() -> None:
    (deployment,) = of_kind(
        "Deployment", render(scheduled_chain("q", ["edge"]), RenderSettings()).objects
    )
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_only_neighbours_and_the_dispatcher_get_in() -> None:
    # device -> edge -> cloud: the device's neighbour is the edge alone.
    found = render(scheduled_chain("q", ["device", "edge", "cloud"]), RenderSettings())
    policies = of_kind("NetworkPolicy", found.objects)
    told = {
        policy["metadata"]["labels"][TIER]: [
            source["podSelector"]["matchLabels"].get(TIER, "dispatcher")
            for source in policy["spec"]["ingress"][0]["from"]
        ]
        for policy in policies
    }

    assert told == {
        "device": ["edge", "dispatcher"],
        "edge": ["cloud", "device", "dispatcher"],
        "cloud": ["edge", "dispatcher"],
    }


def test_standby_is_further_replicas_on_any_node_behind_the_same_service() -> None:
    found = render(scheduled_chain("q", ["edge"]), RenderSettings(standby=2))
    standby = [
        d for d in of_kind("Deployment", found.objects) if d["metadata"]["labels"][ROLE] != SERVING
    ]
    (service,) = of_kind("Service", found.objects)
    (deployment,) = standby
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    assert deployment["spec"]["replicas"] == 2
    assert nodes_of(deployment) == {TIER: "edge"}
    assert service["spec"]["selector"].items() <= labels.items()


def test_what_is_printed_has_no_aliases_and_the_labels_that_are_recommended() -> None:
    settings = RenderSettings(image="registry:5000/worker:1.2", standby=1)
    found = render(scheduled_chain("q", ["device", "edge"]), settings)

    for text in (found.as_yaml(), helm_values([found])):
        assert not re.search(r"(^|[:-] )[&*]id\d", text, re.MULTILINE)
    for document in found.objects:
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "circinus-worker"  # not the dispatcher's
        assert labels["app.kubernetes.io/instance"] == "q"
        assert labels["app.kubernetes.io/part-of"] == "circinus"
        assert labels["app.kubernetes.io/version"] == "1.2"
    for deployment in of_kind("Deployment", found.objects):
        template, chosen = (deployment["spec"][name] for name in ("template", "selector"))
        assert chosen["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert "app.kubernetes.io/version" not in chosen["matchLabels"]


def test_names_tell_query_and_tier() -> None:
    found = render(scheduled_chain("q-3f", ["edge"]), RenderSettings())

    told = {d["kind"]: d["metadata"]["name"] for d in found.objects}
    assert told.pop("ConfigMap").startswith("cq-q-3f-plan-")
    assert all(name.startswith("cq-q-3f-edge-") for name in told.values())


def test_memory_that_was_measured_is_asked_for_instead_of_a_share() -> None:
    # 400 MiB were resident: 400 * 1.25 + 64 = 564, twice that at most, and no less than a machine.
    mine = scheduled_chain("q", ["edge", "edge"], shares={"edge": 0.05})
    measured = {"op0": 300 * 2**20, "op1": 400 * 2**20}

    def memory(of: dict[str, int], machine: str) -> tuple[str, str]:
        scheduled = replace(mine, plan=replace(mine.plan, memory_bytes=of))
        shape = MachineShape(memory=machine)
        found = render(scheduled, RenderSettings(machine=shape)).objects
        (deployment,) = of_kind("Deployment", found)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        resources = container["resources"]
        return resources["requests"]["memory"], resources["limits"]["memory"]

    assert memory(measured, "4Gi") == ("564Mi", "1128Mi")
    assert memory(measured, "1Gi") == ("564Mi", "1024Mi")
    assert memory(measured, "512Mi") == ("564Mi", "564Mi")
    # One of them was not: a twentieth of the machine, and all of it.
    assert memory({"op0": 2**30}, "1000Mi") == ("50Mi", "1000Mi")


def test_helm_values_hold_the_same_objects() -> None:
    found = render(scheduled_chain("q", ["edge"]), RenderSettings())

    assert yaml.safe_load(helm_values([found])) == {"manifests": list(found.objects)}
    assert list(yaml.safe_load_all(found.as_yaml())) == list(found.objects)


# --- Of any plan ---------------------------------------------------------------------


@st.composite
def machines(draw: st.DrawFn) -> MachineShape:
    """Any machine."""
    return MachineShape(
        cpu=draw(st.sampled_from(["333m", "1", "1.5", "7", "64"])),
        memory=draw(st.sampled_from(["100Mi", "1.5Gi", "2G", "64Gi"])),
    )


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scheduled_plans(), st.sampled_from(Pinning), st.integers(0, 2), machines(), TEMPLATES)
def test_objects_of_any_plan_are_valid_unique_and_within_the_grant(
    scheduled: ScheduledPlan,
    pinning: Pinning,
    standby: int,
    machine: MachineShape,
    template: PodTemplate,
) -> None:
    chosen = RenderSettings(pinning=pinning, standby=standby, machine=machine, template=template)
    found = render(scheduled, chosen).objects
    for document in found:
        assert_valid(document)

    names = Counter((d["kind"], d["metadata"]["name"]) for d in found)
    assert set(names.values()) == {1}
    assert all(DNS_LABEL.fullmatch(name) for _, name in names)
    for document in found:
        metadata = document["metadata"]
        assert metadata["annotations"]["circinus.io/query-id"] == scheduled.query_id
        assert metadata["annotations"]["circinus.io/plan-id"] == scheduled.plan.id
        assert {QUERY, PLAN} <= metadata["labels"].keys()
        assert metadata["annotations"][CONTENT] == hash_without_itself(document)
    assert_within_grant(scheduled, found, chosen.machine)


def hash_without_itself(document: Object) -> str:
    metadata = document["metadata"]
    others = {k: v for k, v in metadata["annotations"].items() if k != CONTENT}
    return content_hash({**document, "metadata": {**metadata, "annotations": others}})


def assert_within_grant(
    scheduled: ScheduledPlan, found: tuple[Object, ...], machine: MachineShape
) -> None:
    whole = {
        "cpu": quantity(machine.cpu),
        "memory": quantity(machine.memory),
    }
    serving = [d for d in of_kind("Deployment", found) if d["metadata"]["labels"][ROLE] == SERVING]
    for tier in scheduled.plan.deployment.tiers:
        granted = sum(Decimal(str(s.share)) for s in scheduled.slices if s.tier == tier)
        mine = [d for d in serving if d["metadata"]["labels"][TIER] == tier]
        for resource, size in whole.items():
            assert sum(requests(d).get(resource, Decimal(0)) for d in mine) <= granted * size
        assert sum(d["spec"]["replicas"] for d in mine) == len(
            [s for s in scheduled.slices if s.tier == tier]
        )


@given(scheduled_plans(), scheduled_plans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_objects_of_unlike_queries_or_plans_never_share_a_name(
    one: ScheduledPlan, other: ScheduledPlan
) -> None:
    mine, theirs = (
        {(d["kind"], d["metadata"]["name"]) for d in render(each, RenderSettings()).objects}
        for each in (one, other)
    )

    same = (one.query_id, one.plan.id) == (other.query_id, other.plan.id)
    assert same or mine.isdisjoint(theirs)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scheduled_plans(), st.sampled_from(Pinning), st.integers(0, 2))
def test_objects_of_any_plan_are_read_back_into_the_same_plan(
    scheduled: ScheduledPlan, pinning: Pinning, standby: int
) -> None:
    found = render(scheduled, RenderSettings(pinning=pinning, standby=standby))
    objects = tuple(yaml.safe_load_all(found.as_yaml()))
    serving = [
        d for d in of_kind("Deployment", objects) if d["metadata"]["labels"][ROLE] == SERVING
    ]
    pods = [
        (d["spec"]["template"]["spec"]["containers"][0], d["spec"]["replicas"]) for d in serving
    ]
    planned = as_planned(scheduled.plan, scheduled.graph)

    assert read_back(scheduled.graph, [(pod["args"], count) for pod, count in pods]) == planned
    for deployment, (pod, _) in zip(serving, pods, strict=True):
        assert nodes_of(deployment)[TIER] == label_value(parse(pod["args"]).tier)
    (document,) = of_kind("ConfigMap", objects)
    told = json.loads(document["data"]["plan.json"])
    where = scheduled.plan.deployment
    assert told["configuration"] == planned.configuration
    assert (told["placement"], told["allocation"], told["replicas"]) == (
        where.placement,
        where.allocation,
        where.replicas,
    )


def test_the_same_plan_is_rendered_the_same() -> None:
    first, again = (
        render(scheduled_chain("q", ["device", "edge"]), RenderSettings()) for _ in range(2)
    )

    assert first == again
