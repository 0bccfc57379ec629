"""The chart: what helm makes of it, without a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from circinus.deploy.kubernetes.access import (
    CREDENTIALS,
    DEPLOYER,
    DISPATCHER,
    OPERATOR,
    RETIREMENT,
    Permission,
)
from circinus.deploy.kubernetes.ownership import selector_of_workers
from circinus.deploy.kubernetes.pod_template import read_pod_template
from tests.cluster.chart import CHART, definition, helm, jobs, of_kind, rendered, template

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
        ("infrastructure=three-tier", "at '/infrastructure': got string, want object"),
        ("infrastructure.document.name=lab", "missing property 'tiers'"),
        ("ingress.enabled=true", "at '/ingress/hosts': minItems: got 0, want 1"),
        ("ingress.hosts={Upper}", "at '/ingress/hosts/0'"),
        ("httpRoute.enabled=true", "at '/httpRoute/parentRefs': minItems: got 0, want 1"),
        ("serviceMonitor.interval=often", "at '/serviceMonitor/interval'"),
        ("operator.healthPort=80", "at '/operator/healthPort'"),
        ("operator.podDisruptionBudget.maxUnavailable=101%", "at '/operator/podDisruptionBudget"),
        ("tls.certManager.issuerRef.kind=Issuer", "at '/tls/certManager/issuerRef'"),
        ("credentials.days=0", "at '/credentials/days': minimum: got 0, want 1"),
        ("credentials.schedule=daily", "at '/credentials/schedule'"),
        ("crds.install=maybe", "at '/crds/install': got string, want boolean"),
    ],
)
def test_a_wrong_value_is_named(value: str, told: str) -> None:
    done = template("--set", value)
    assert done.returncode != 0
    assert told in done.stderr


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            "settings.CIRCINUS_TARGET=local",
            "settings.CIRCINUS_TARGET must not be set: the chart makes it of deployment.target.",
        ),
        (
            "settings.CIRCINUS_TOKEN=x",
            "settings.CIRCINUS_TOKEN must not be set: the chart makes it of token.existingSecret.",
        ),
        (
            "infrastructure.preset=local,infrastructure.document.name=a,"
            "infrastructure.document.tiers[0].name=b",
            "infrastructure.preset and infrastructure.document must not both be set",
        ),
        (
            "calibration.enabled=true,calibration.pipelines=null",
            "calibration.pipelines must name at least one pipeline",
        ),
        (
            "tls.existingSecret=mine,tls.certManager.enabled=true",
            'tls.existingSecret must be empty where tls.certManager.enabled is true, got "mine".',
        ),
        (
            "tls.existingClientSecret=mine",
            "tls.existingClientSecret must be empty where tls.existingSecret is",
        ),
    ],
)
def test_values_that_clash_are_refused_with_what_to_set(values: str, told: str) -> None:
    done = template("--set", values)
    assert done.returncode != 0
    assert told in done.stderr


def test_what_the_chart_sets_is_what_it_refuses_among_settings() -> None:
    everything = "deployment.target=kubernetes,environment.hostPath=/e,discovery.enabled=true"
    everything += ",deployment.podTemplate.spec.priorityClassName=batch"
    pod = of_kind(rendered(everything), "Deployment", "c")["spec"]["template"]["spec"]
    set_by_it = {variable["name"] for variable in pod["containers"][0]["env"]}
    checks = (CHART / "templates" / "_checks.tpl").read_text(encoding="utf-8")
    reserved = set(re.findall(r"^(CIRCINUS_[A-Z_]+): ", checks, re.MULTILINE))
    # That of a folder, which the chart leaves at its default.
    assert reserved - set_by_it == {"CIRCINUS_WORKER_TLS"}
    assert set_by_it <= reserved
    taken = rendered("settings.CIRCINUS_LOG_LEVEL=debug")
    pod = of_kind(taken, "Deployment", "c")["spec"]["template"]["spec"]
    assert {"name": "CIRCINUS_LOG_LEVEL", "value": "debug"} in pod["containers"][0]["env"]


def test_large_numbers_of_a_file_are_written_out(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("settings: {CIRCINUS_BODY_LIMIT_BYTES: 2097152, CIRCINUS_DRIFT_S: 0.5}\n")
    done = template("--values", str(file))
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    assert variables["CIRCINUS_BODY_LIMIT_BYTES"] == "2097152"
    assert variables["CIRCINUS_DRIFT_S"] == "0.5"


@pytest.mark.parametrize("target", ["local", "kubernetes"])
def test_equal_values_give_equal_bytes_and_nothing_secret(target: str) -> None:
    first, second = (template("--set", f"deployment.target={target}") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    secrets = [d for d in yaml.safe_load_all(first.stdout) if d and d["kind"] == "Secret"]
    assert secrets
    assert all(not {"data", "stringData"} & document.keys() for document in secrets)


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


def test_every_value_is_in_the_list_of_the_page_and_that_has_no_other() -> None:
    page = (CHART.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    values = page.partition("checked by its schema:\n\n")[2].partition("\n\n")[0]
    entries = [entry.partition(":")[0] for entry in values.split("\n- ")]
    named = re.findall(r"`([a-zA-Z.]+?)(?:\.\*)?`", "\n".join(entries))
    assert {name.partition(".")[0] for name in named} == set(VALUES)
    for name in named:
        found = VALUES
        for part in name.split("."):
            found = found[part]  # KeyError: there is no such value


def test_the_operators_role_is_what_it_needs_and_no_more() -> None:
    assert rights(of_kind(rendered(), "Role", "c-operator")) == needs(OPERATOR)


def test_the_hooks_role_is_what_it_needs_and_no_more() -> None:
    assert rights(of_kind(rendered(), "Role", "c-retire")) == needs(RETIREMENT)


@pytest.mark.parametrize(("values", "kept"), [([], True), (["persistence.keep=false"], False)])
def test_the_claim_of_the_volume_is_kept_unless_values_say_no(
    values: list[str], kept: bool
) -> None:
    claim = of_kind(rendered(*values), "PersistentVolumeClaim", "c")
    annotations = claim["metadata"].get("annotations", {})
    assert (annotations.get("helm.sh/resource-policy") == "keep") is kept


def test_only_the_claim_and_the_definition_outlive_the_release() -> None:
    documents = rendered("deployment.target=kubernetes")
    noted = [(d["kind"], d["metadata"].get("annotations") or {}) for d in documents]
    kept = {kind for kind, notes in noted if "helm.sh/resource-policy" in notes}
    assert kept == {"PersistentVolumeClaim", "CustomResourceDefinition"}


def test_queries_are_released_before_anything_is_deleted_and_only_where_some_are_followed() -> (
    None
):
    hooks = [d for d in rendered() if "helm.sh/hook" in (d["metadata"].get("annotations") or {})]
    assert [(h["kind"], h["metadata"]["annotations"]["helm.sh/hook"]) for h in hooks] == [
        ("Job", "pre-delete")
    ]
    names = [d["metadata"]["name"] for d in rendered("operator.enabled=false")]
    assert not any("retire" in name for name in names)


def test_the_policy_of_workers_is_for_those_of_the_release() -> None:
    policy = of_kind(rendered("deployment.target=kubernetes"), "NetworkPolicy", "c-workers")
    assert selector_of_workers("c") == ",".join(
        f"{name}={value}"
        for name, value in {
            "app.kubernetes.io/managed-by": "circinus",
            **policy["spec"]["podSelector"]["matchLabels"],
        }.items()
    )


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


def test_the_account_that_fills_in_secrets_may_do_so_with_those_of_the_release_alone() -> None:
    documents = rendered("deployment.target=kubernetes")
    role = of_kind(documents, "Role", "c-credentials")
    assert rights(role) == needs(CREDENTIALS)
    (rule,) = role["rules"]
    made = {d["metadata"]["name"] for d in documents if d["kind"] == "Secret"}
    assert set(rule["resourceNames"]) == made
    (job,) = jobs(documents)
    told = set(job["spec"]["template"]["spec"]["containers"][0]["args"])
    assert made <= told


def test_what_is_given_is_not_made() -> None:
    given = ("deployment.target=kubernetes", "token.existingSecret=t")
    for tls in ("tls.existingSecret=w", "tls.certManager.enabled=true"):
        documents = rendered(*given, tls)
        assert not {"Secret", "CronJob"} & {d["kind"] for d in documents}
        assert not jobs(documents)
    of_token = rendered("deployment.target=kubernetes", "tls.existingSecret=w")
    made = [d["metadata"]["name"] for d in of_token if d["kind"] == "Secret"]
    assert made == ["c-token"]
    assert not [d for d in of_token if d["kind"] == "CronJob"]  # a token is not over by itself


def test_another_job_has_another_name_and_the_same_one_the_same() -> None:
    def name(*values: str) -> str:
        (job,) = jobs(rendered(*values))
        return str(job["metadata"]["name"])

    assert name() == name("resources.requests.cpu=1")
    assert len({name(), name("image.tag=v2"), name("deployment.target=kubernetes")}) == 3


@pytest.mark.parametrize(
    ("values", "workers", "service"),
    [
        ("", "c-workers-tls", "c-service-tls"),
        ("tls.existingSecret=a", "a", "a"),
        ("tls.existingSecret=a,tls.existingClientSecret=b", "a", "b"),
        ("tls.certManager.enabled=true", "c-workers-cert", "c-service-cert"),
    ],
)
def test_service_and_workers_have_each_the_certificate_of_its_role(
    values: str, workers: str, service: str
) -> None:
    documents = rendered("deployment.target=kubernetes", *filter(None, [values]))
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    assert variables["CIRCINUS_WORKER_TLS_SECRET"] == workers
    (volume,) = [v for v in pod["volumes"] if v["name"] == "tls"]
    assert volume["secret"]["secretName"] == service
    # A Secret that has no data yet would be mounted without them.
    assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key", "ca.crt"]


def test_cert_manager_issues_for_the_roles_by_an_authority_of_the_release_or_an_issuer() -> None:
    given = ("deployment.target=kubernetes", "tls.certManager.enabled=true")
    own = rendered(*given)
    uses = {
        name: of_kind(own, "Certificate", name)["spec"]["usages"]
        for name in ("c-workers", "c-service")
    }
    assert uses["c-workers"] == ["digital signature", "server auth"]
    assert uses["c-service"] == ["digital signature", "client auth"]
    signer = of_kind(own, "Certificate", "c-workers")["spec"]["issuerRef"]["name"]
    secret = of_kind(own, "Issuer", signer)["spec"]["ca"]["secretName"]
    authority = of_kind(own, "Certificate", "c-workers-authority")["spec"]
    assert authority["isCA"]
    assert authority["secretName"] == secret
    assert "selfSigned" in of_kind(own, "Issuer", authority["issuerRef"]["name"])["spec"]

    named = "tls.certManager.issuerRef.name=corp,tls.certManager.issuerRef.kind=ClusterIssuer"
    theirs = rendered(*given, named)
    assert not [d for d in theirs if d["kind"] == "Issuer"]
    asked = of_kind(theirs, "Certificate", "c-service")["spec"]["issuerRef"]
    assert asked == {"name": "corp", "kind": "ClusterIssuer", "group": "cert-manager.io"}


def test_the_definition_is_rendered_as_it_is_and_kept_at_the_end() -> None:
    found = of_kind(rendered(), "CustomResourceDefinition", "pipelinequeries.circinus.io")
    assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert found == definition()
    assert not [d for d in rendered("crds.install=false") if "Definition" in d["kind"]]


def test_the_operator_is_probed_at_the_port_that_it_is_told() -> None:
    def container(*values: str) -> dict[str, Any]:
        pod = of_kind(rendered(*values), "Deployment", "c-operator")["spec"]["template"]["spec"]
        found: dict[str, Any] = pod["containers"][0]
        return found

    probed = container("operator.healthPort=9999")
    at = probed["args"].index("--health")
    assert probed["args"][at + 1] == "9999"
    assert probed["ports"] == [{"name": "health", "containerPort": 9999}]
    paths = {kind: probed[f"{kind}Probe"]["httpGet"]["path"] for kind in ("liveness", "readiness")}
    assert paths == {"liveness": "/healthz", "readiness": "/readyz"}
    silent = container("operator.healthPort=0")
    assert "--health" not in silent["args"]
    assert not [key for key in silent if key.endswith("Probe")]


def test_monitors_budgets_and_workers_each_find_their_own_pods() -> None:
    more = ("serviceMonitor.enabled=true", "service.podDisruptionBudget.enabled=true")
    documents = rendered("deployment.target=kubernetes", *more)
    service = of_kind(documents, "Service", "c-control")  # of which there is one: it has all
    chosen = of_kind(documents, "ServiceMonitor", "c")["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= service["metadata"]["labels"].items()
    for name in ("c", "c-operator", "c-dispatcher"):
        budget = of_kind(documents, "PodDisruptionBudget", name)["spec"]
        pods = of_kind(documents, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert budget["selector"]["matchLabels"] == pods
        assert budget["maxUnavailable"] == 1  # a drained node is never held up


def test_a_service_that_deploys_locally_has_no_rights_and_no_token_of_the_cluster() -> None:
    documents = rendered("token.existingSecret=t")
    roles = [d["metadata"]["name"] for d in documents if d["kind"] == "Role"]
    assert roles == ["c-operator", "c-retire"]
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", ["c", "c-operator", "c-dispatcher"])
def test_the_cluster_sets_no_variables_that_could_be_settings(name: str) -> None:
    documents = rendered("deployment.target=kubernetes")
    pod = of_kind(documents, "Deployment", name)["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False  # they would set CIRCINUS_PORT in a release so named


def test_nothing_runs_as_root_or_writes_its_image() -> None:
    documents = rendered("deployment.target=kubernetes")
    specs = [d["spec"] for d in documents if d["kind"] in {"Deployment", "Job"}]
    specs += [d["spec"]["jobTemplate"]["spec"] for d in documents if d["kind"] == "CronJob"]
    pods = [spec["template"]["spec"] for spec in specs]
    assert len(pods) == 6
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_infrastructure_document_becomes_the_services_file() -> None:
    at = "infrastructure.document"
    document = f"{at}.name=lab,{at}.tiers[0].name=cloud"
    documents = rendered(document)
    config = of_kind(documents, "ConfigMap", "c-infrastructure")
    assert yaml.safe_load(config["data"]["infrastructure.yaml"]) == {
        "name": "lab",
        "tiers": [{"name": "cloud"}],
    }
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    assert variables["CIRCINUS_INFRASTRUCTURE"] == "/etc/circinus/infrastructure.yaml"


def test_what_calibrates_is_as_the_service_and_tells_it_what_was_measured() -> None:
    at = "calibration"
    chosen = (f"{at}.enabled=true", f"{at}.pipelines={{digits,mine:pipeline}}")
    pod = of_kind(rendered(*chosen), "Deployment", "c")["spec"]["template"]["spec"]
    (first,), (service,) = pod["initContainers"], pod["containers"]
    file = "/var/lib/circinus/infrastructure.calibrated.yaml"
    pipelines = ["--pipeline", "digits", "--pipeline", "mine:pipeline"]
    assert first["args"] == ["calibrate", "local", "--once", "--out", file, *pipelines]
    assert {"name": "CIRCINUS_INFRASTRUCTURE", "value": file} in service["env"]
    for field in ("image", "env", "volumeMounts", "securityContext"):
        assert first[field] == service[field]
    at = "infrastructure.document"
    document = rendered(*chosen, f"{at}.name=lab", f"{at}.tiers[0].name=cloud")
    (first,) = of_kind(document, "Deployment", "c")["spec"]["template"]["spec"]["initContainers"]
    assert first["args"][1] == "/etc/circinus/infrastructure.yaml"


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


def test_a_template_of_pods_reaches_the_service_as_it_was_given() -> None:
    toleration = "deployment.podTemplate.spec.tolerations[0]"
    documents = rendered(
        "deployment.target=kubernetes",
        f"{toleration}.key=<team>",
        f"{toleration}.operator=Exists",
        f"{toleration}.tolerationSeconds=3600",
    )
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    found = read_pod_template(variables["CIRCINUS_WORKER_POD_TEMPLATE"])
    given = {"key": "<team>", "operator": "Exists", "tolerationSeconds": 3600}
    assert found.tolerations == (given,)


def test_the_service_answers_to_its_names_in_the_cluster_and_to_those_given() -> None:
    routes = ("ingress.enabled=true,ingress.hosts={*.in.org}", "httpRoute.enabled=true")
    gateway = "httpRoute.parentRefs[0].name=g,httpRoute.hostnames={route.org}"
    documents = rendered("service.hosts={plans.example.org}", *routes, gateway)
    pod = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]
    variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
    hosts = variables["CIRCINUS_ALLOWED_HOSTS"].split(",")
    assert {"c", "plans.example.org", ".in.org", "route.org"} <= set(hosts)
    assert any(re.fullmatch(r"c\.[a-z-]+\.svc", host) for host in hosts)
