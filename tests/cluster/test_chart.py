"""The chart: what helm makes of it, without a cluster."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from circinus.deploy.kubernetes.access import DEPLOYER, DISPATCHER, OPERATOR, Permission
from tests.cluster.chart import CHART, VERSION, helm, of_kind, rendered

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
pytestmark = pytest.mark.cluster


def rights(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needs(table: tuple[Permission, ...]) -> set[tuple[str, str, str]]:
    return {(need.group, need.resource, verb) for need in table for verb in need.verbs}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("service.port=0", "at '/service/port': minimum: got 0, want 1"),
        ("deployment.target=moon", "at '/deployment/target'"),
        ("nope=1", "additional properties 'nope' not allowed"),
        ("settings.TOKEN=x", "does not match pattern"),
        ("operator.replicas=0", "at '/operator/replicas'"),
        ("dispatchers.replicas=-1", "at '/dispatchers/replicas'"),
        ("environment.hostPath=relative", "at '/environment/hostPath'"),
        ("persistence.size=much", "at '/persistence/size'"),
    ],
)
def test_a_wrong_value_is_named(value: str, told: str) -> None:
    done = helm("template", "c", str(CHART), "--kube-version", VERSION, "--set", value)
    assert done.returncode != 0
    assert told in done.stderr


def test_the_chart_lints_strictly() -> None:
    done = helm("lint", str(CHART), "--strict")
    assert done.returncode == 0, done.stdout


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def known(values: Any, part: Any, path: str = "") -> list[str]:  # noqa: ANN401 - JSON trees
        if not isinstance(values, dict) or "properties" not in part:
            return []
        missing = [f"{path}.{name}" for name in values if name not in part["properties"]]
        for name in values.keys() & part["properties"].keys():
            missing += known(values[name], part["properties"][name], f"{path}.{name}")
        return missing

    assert known(VALUES, schema) == []


def test_the_operators_role_is_what_it_needs_and_no_more() -> None:
    assert rights(of_kind(rendered(), "Role", "c-operator")) == needs(OPERATOR)


def test_the_services_role_is_what_it_needs_and_no_more() -> None:
    documents = rendered("deployment.target=kubernetes")
    assert rights(of_kind(documents, "Role", "c")) == needs(DEPLOYER)


def test_the_dispatchers_role_is_what_it_needs_and_no_more() -> None:
    documents = rendered("deployment.target=kubernetes")
    assert rights(of_kind(documents, "Role", "c-dispatcher")) == needs(DISPATCHER)


@pytest.mark.parametrize(
    "values", [(), ("deployment.target=kubernetes", "dispatchers.replicas=0")]
)
def test_without_dispatchers_the_service_answers_requests(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    assert not [d for d in documents if d["metadata"]["name"].startswith("c-dispatcher")]
    selector = of_kind(documents, "Service", "c")["spec"]["selector"]
    assert selector["app.kubernetes.io/component"] == "service"


def test_clients_reach_dispatchers_and_these_the_service_also_before_it_is_ready() -> None:
    documents = rendered("deployment.target=kubernetes", "dispatchers.replicas=3")
    deployment = of_kind(documents, "Deployment", "c-dispatcher")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert of_kind(documents, "Service", "c")["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    control = of_kind(documents, "Service", "c-control")["spec"]
    assert control["publishNotReadyAddresses"]
    service = of_kind(documents, "Deployment", "c")["spec"]["template"]
    assert control["selector"].items() <= service["metadata"]["labels"].items()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["dispatch", "--service", "http://c-control.ns.svc:8350"]
    variables = {v["name"]: v.get("value") for v in service["spec"]["containers"][0]["env"]}
    assert variables["CIRCINUS_DISPATCHERS"] == "3"


def test_workers_take_calls_from_dispatchers() -> None:
    documents = rendered("deployment.target=kubernetes")
    policy = of_kind(documents, "NetworkPolicy", "c-workers-of-dispatchers")["spec"]
    (rule,) = policy["ingress"]
    (caller,) = (each["podSelector"]["matchLabels"] for each in rule["from"])
    pod = of_kind(documents, "Deployment", "c-dispatcher")["spec"]["template"]["metadata"]
    assert caller.items() <= pod["labels"].items()
    (of_service,) = [
        d
        for d in documents
        if d["kind"] == "NetworkPolicy" and d["metadata"]["name"] == "c-workers"
    ]
    assert policy["podSelector"] == of_service["spec"]["podSelector"]


def test_a_service_that_deploys_locally_has_no_rights_and_no_token_of_the_cluster() -> None:
    documents = rendered()
    assert [d["metadata"]["name"] for d in documents if d["kind"] == "Role"] == ["c-operator"]
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", ["c", "c-operator", "c-dispatcher"])
def test_the_cluster_sets_no_variables_that_could_be_settings(name: str) -> None:
    documents = rendered("deployment.target=kubernetes")
    pod = of_kind(documents, "Deployment", name)["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False  # they would set CIRCINUS_PORT in a release so named


@pytest.mark.parametrize("name", ["c", "c-operator", "c-dispatcher"])
def test_nothing_runs_as_root_or_writes_its_image(name: str) -> None:
    documents = rendered("deployment.target=kubernetes")
    pod = of_kind(documents, "Deployment", name)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_infrastructure_document_becomes_the_services_file() -> None:
    document = "infrastructure.name=lab,infrastructure.tiers[0].name=cloud"
    documents = rendered(document)
    config = of_kind(documents, "ConfigMap", "c-infrastructure")
    assert yaml.safe_load(config["data"]["infrastructure.yaml"]) == {
        "name": "lab",
        "tiers": [{"name": "cloud"}],
    }
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    assert variables["CIRCINUS_INFRASTRUCTURE"] == "/etc/circinus/infrastructure.yaml"


def test_the_token_comes_from_the_secret_that_is_named() -> None:
    documents = rendered("token.existingSecret=mine")
    assert not [d for d in documents if d["kind"] == "Secret"]
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    source = next(v for v in pod["containers"][0]["env"] if v["name"] == "CIRCINUS_TOKEN")
    assert source["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "token"}


def test_every_setting_that_the_chart_sets_is_one_of_the_service() -> None:
    from circinus.api.settings import Settings

    documents = rendered("deployment.target=kubernetes", "environment.hostPath=/env")
    for name in ("c", "c-dispatcher"):
        pod = of_kind(documents, "Deployment", name)["spec"]["template"]["spec"]
        names = {v["name"].removeprefix("CIRCINUS_").lower() for v in pod["containers"][0]["env"]}
        assert names <= set(Settings.model_fields)


def test_the_service_answers_to_its_names_in_the_cluster_and_to_those_given() -> None:
    documents = rendered("service.hosts={plans.example.org}")
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    hosts = variables["CIRCINUS_ALLOWED_HOSTS"].split(",")
    assert {"c", "plans.example.org"} <= set(hosts)
    assert any(re.fullmatch(r"c\.[a-z-]+\.svc", host) for host in hosts)
