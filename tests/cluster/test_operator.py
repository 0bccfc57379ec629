"""Objects become queries of a real service; of two operators one leads, and either may be killed.

The operators act as an account that has the chart's role and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import simulated
from tests.cluster.accounts import grant, stranger
from tests.cluster.api import eventually
from tests.cluster.chart import RELEASE, definition, of_kind, rendered
from tests.cluster.cluster import Cluster
from tests.e2e.service_process import ROOT, ServiceProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
PATIENCE_S = 120.0
LEASE_S = 3.0
INFRASTRUCTURE = {
    "name": "two-sites",
    "tiers": [
        {"name": "hill", "machines": 1, "price_usd_per_hour": 0.1},
        {"name": "valley", "machines": 1, "price_usd_per_hour": 5.0},
    ],
    "links": [{"between": ["hill", "valley"], "bandwidth_mbit_per_s": 1000, "delay_s": 0.0001}],
}
SPEC = {
    "pipeline": "slow-sum",
    "data": {"examples": 60},
    "slo": {"accuracy": 0.6, "latency_s": 1.0},
    "limits": {"profiling_s": 60.0, "configurations": 4},
}


@dataclass
class Operated:
    """A namespace whose objects operators follow, and the service that they talk to."""

    cluster: Cluster
    namespace: str
    service: ServiceProcess
    kubeconfig: Path
    folder: Path
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def objects(self) -> str:
        return f"/apis/circinus.io/v1alpha1/namespaces/{self.namespace}/pipelinequeries"

    def create(self, name: str, **spec: object) -> None:
        body = {
            "apiVersion": "circinus.io/v1alpha1",
            "kind": "PipelineQuery",
            "metadata": {"name": name},
            "spec": {**SPEC, **spec},
        }
        self.cluster.api.create(self.objects, body)

    def status(self, name: str) -> dict[str, Any]:
        found = self.cluster.api.get(f"{self.objects}/{name}") or {}
        status: dict[str, Any] = found.get("status", {})
        return status

    def wait_for(self, name: str, **expected: object) -> dict[str, Any]:
        def so() -> bool:
            status = self.status(name)
            return all(status.get(key) == value for key, value in expected.items())

        try:
            eventually(so, f"{name} to be {expected}", timeout_s=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status(name)}\n{self.logs()}") from error
        return self.status(name)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("*.log"))

    def start(
        self, *more: str, lease_s: float = LEASE_S, namespaces: Sequence[str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start an operator; of other namespaces than its own only where they are named."""
        url = f"http://127.0.0.1:{self.service.port}"
        followed = [self.namespace] if namespaces is None else namespaces
        options = [word for name in followed for word in ("--namespace", name)]
        options += ["--kubeconfig", str(self.kubeconfig), "--url", url]
        options += ["--lease", str(lease_s), "--every", "0.5", *more]
        path = self.folder / f"operator-{len(self.running)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "circinus.api.cli", "operator", *options],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )
        self.running[process.pid] = process
        return process

    def leader(self) -> int:
        """Return the process that holds the lease; 0: none does."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        lease = self.cluster.api.get(f"{leases}/circinus-operator") or {}
        holder = lease.get("spec", {}).get("holderIdentity") or ""
        return next((pid for pid in self.running if f"-{pid}-" in holder), 0)

    def events(self, name: str) -> list[str]:
        found = self.cluster.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        return [e["reason"] for e in found if e["involvedObject"]["name"] == name]

    def stop(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def operated(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    folder = tmp_path_factory.mktemp("operated")
    rules = of_kind(rendered(), "Role", f"{RELEASE}-operator")["rules"]
    define(cluster)
    file = folder / "two-sites.yaml"
    file.write_text(yaml.safe_dump(INFRASTRUCTURE))
    with ExitStack() as last:
        kubeconfig = last.enter_context(stranger(cluster, folder))
        nodes = [simulated.add_node(cluster.api, tier, 0) for tier in ("hill", "valley")]
        for node in nodes:
            last.callback(cluster.api.delete, f"/api/v1/nodes/{node}")
        namespace = last.enter_context(cluster.namespace())
        grant(cluster, namespace, rules)
        extra = {
            "CIRCINUS_INFRASTRUCTURE": str(file),
            "CIRCINUS_DISCOVERY": "true",
            "KUBECONFIG": str(cluster.kubeconfig),
        }
        service = ServiceProcess(folder, extra=extra)
        last.callback(service.stop)
        service.start()
        found = Operated(cluster, namespace, service, kubeconfig, folder)
        last.callback(found.stop)
        for _ in range(2):
            found.start()
        eventually(found.leader, "an operator that leads", timeout_s=PATIENCE_S)
        yield found


def define(cluster: Cluster) -> None:
    """Let the cluster know PipelineQuery."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    document = definition()
    name = document["metadata"]["name"]
    if cluster.api.get(f"{path}/{name}") is None:
        cluster.api.create(path, document)
    eventually(lambda: is_served(cluster), "PipelineQuery to be served", timeout_s=30)


def is_served(cluster: Cluster) -> bool:
    try:
        return cluster.api.get("/apis/circinus.io/v1alpha1/pipelinequeries") is not None
    except RuntimeError as error:  # its storage is being made
        if '"code":429' not in str(error):
            raise
        return False


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"pipeline": "a:b"}, "pipeline must be the name of a registered pipeline"),
        ({"slo": {"accuracy": 0.5}}, "latency_s .* or throughput_per_s .*for batch work"),
        ({"data": {"seed": 1}}, "data must have either examples .* or dataset"),
        ({"data": {"examples": 9, "dataset": f"d-{'0' * 32}"}}, "data must have either"),
        ({"data": {"dataset": f"d-{'0' * 32}", "seed": 1}}, "seed must be left out without"),
        ({"data": {"dataset": "mine"}}, "dataset must be the id of a data set"),
        ({"tenant": "1st"}, "tenant must be a name: a letter"),
        (
            {"slo": {"accuracy": 0.5, "throughput_per_s": 1.0}, "request_rate_per_s": 1.0},
            "request_rate_per_s must be left out with slo.throughput_per_s",
        ),
        ({"restrictions": {"tiers": {"double": {}}}}, "say `only` .* or `never`"),
        ({"slo": {"accuracy": 2.0, "latency_s": 1.0}}, "spec.slo.accuracy"),
        ({"weight": "much"}, "spec.weight"),
    ],
)
def test_the_cluster_refuses_what_is_no_query(
    operated: Operated, spec: dict[str, object], told: str
) -> None:
    with pytest.raises(RuntimeError, match=told):
        operated.create("wrong", **spec)


def test_what_the_service_refuses_is_said_in_the_status(operated: Operated) -> None:
    operated.create("unknown", pipeline="no-such")
    status = operated.wait_for("unknown", phase="refused")
    assert "no-such" in status["message"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Planned"] == "False"
    operated.cluster.api.delete(f"{operated.objects}/unknown")
    gone(operated, "unknown")


def test_what_no_rule_of_the_cluster_can_see_the_service_says(operated: Operated) -> None:
    operated.create("hollow", restrictions={"knobs": {"double": {"effort": {}}}})
    status = operated.wait_for("hollow", phase="refused")
    assert "restrictions.knobs.double.effort must say only or never" in status["message"]
    operated.cluster.api.delete(f"{operated.objects}/hollow")
    gone(operated, "hollow")


def test_the_life_of_an_object(operated: Operated) -> None:
    operated.create("sum")
    first = operated.wait_for("sum", phase="serving")
    assert {c["type"]: c["status"] for c in first["conditions"]} == {
        "Planned": "True",
        "Ready": "True",
        "ObjectivesMet": "Unknown",  # nobody sent requests
    }
    assert first["costUsdPerHour"] > 0
    assert set(first["sloStates"]) == {"accuracy", "latency"}

    with pytest.raises(RuntimeError, match="make another PipelineQuery"):
        operated.cluster.api.merge(f"{operated.objects}/sum", {"spec": {"pipeline": "digits"}})

    operated.cluster.api.merge(f"{operated.objects}/sum", {"spec": {"slo": {"latency_s": 0.9}}})
    operated.wait_for("sum", phase="serving", observedGeneration=2, servedBy=None)
    second = operated.status("sum")["queryId"]
    assert second != first["queryId"]
    operated.service.wait_for_phase(first["queryId"], "retired")
    assert {"Serving", "Retired"} <= set(operated.events("sum"))

    operated.cluster.api.delete(f"{operated.objects}/sum")
    gone(operated, "sum")
    assert operated.service.query(second)["phase"] == "retired"
    assert (
        operated.service.ask("GET", f"/v1/queries/{second}/deployment").json()["phase"] == "none"
    )


def test_a_killed_leader_is_followed_by_the_other_operator(operated: Operated) -> None:
    leader = operated.leader()
    operated.create("led")
    eventually(lambda: operated.status("led").get("queryId"), "a query", timeout_s=PATIENCE_S)

    operated.running[leader].kill()
    operated.running.pop(leader).wait()

    status = operated.wait_for("led", phase="serving")
    assert operated.leader() in operated.running
    keys = [q["idempotency_key"] for q in queries(operated)]
    assert len(keys) == len(set(keys))  # nobody submitted it again
    assert status["queryId"] in {q["id"] for q in queries(operated)}

    operated.start()  # as the cluster would
    operated.cluster.api.delete(f"{operated.objects}/led")
    gone(operated, "led")


def test_an_api_server_that_dies_is_followed_again(operated: Operated) -> None:
    control = operated.cluster.control
    assert control is not None  # or the account would not be ours either
    operated.create("survivor")
    eventually(lambda: operated.status("survivor").get("queryId"), "a query", timeout_s=PATIENCE_S)
    control.kill_api_server()
    control.start_api_server()
    operated.wait_for("survivor", phase="serving")
    operated.cluster.api.delete(f"{operated.objects}/survivor")
    gone(operated, "survivor")
    eventually(operated.leader, "an operator that leads", timeout_s=PATIENCE_S)


def test_a_query_leaves_a_node_that_is_drained(operated: Operated) -> None:
    operated.create("moving")
    query_id = operated.wait_for("moving", phase="serving")["queryId"]
    (here,) = tiers(operated, query_id)
    (other,) = {"hill", "valley"} - {here}

    for left, taken in ((here, other), (other, here)):
        cordon(operated, taken, None)
        cordon(operated, left, True)
        eventually(
            lambda taken=taken: tiers(operated, query_id) == {taken},  # type: ignore[misc]  # a default binds it
            f"it to run in the {taken}",
            timeout_s=PATIENCE_S,
        )
        operated.wait_for("moving", phase="serving")
    cordon(operated, other, None)
    operated.cluster.api.delete(f"{operated.objects}/moving")
    gone(operated, "moving")


def cordon(operated: Operated, tier: str, value: object) -> None:
    """Let the node of a tier take no new pods, or with None: let it."""
    change = {"spec": {"unschedulable": value}}
    operated.cluster.api.merge(f"/api/v1/nodes/{tier}-0", change)


def test_an_operator_without_a_right_says_which_and_ends(operated: Operated) -> None:
    rules = of_kind(rendered(), "Role", f"{RELEASE}-operator")["rules"]
    left = [rule for rule in rules if rule["resources"] != ["pipelinequeries/status"]]
    with operated.cluster.namespace() as namespace:
        grant(operated.cluster, namespace, left)
        options = ["--namespace", namespace, "--kubeconfig", str(operated.kubeconfig)]
        done = subprocess.run(
            [sys.executable, "-m", "circinus.api.cli", "operator", *options],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    told = "".join(done.stderr.split())  # however it is wrapped
    words = f"patch pipelinequeries/status.circinus.io in namespace {namespace}"
    assert "".join(words.split()) in told
    assert "Traceback" not in done.stderr


def gone(operated: Operated, name: str) -> None:
    path = f"{operated.objects}/{name}"
    eventually(
        lambda: operated.cluster.api.get(path) is None, f"{name} gone", timeout_s=PATIENCE_S
    )


def queries(operated: Operated) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = operated.service.ask("GET", "/v1/queries").json()["items"]
    return found


def tiers(operated: Operated, query_id: str) -> set[str]:
    """Return the tiers that the schedule gives a query."""
    schedule = operated.service.ask("GET", "/v1/schedule").json()
    return {
        share["tier"]
        for assigned in schedule["assignments"]
        if assigned["query_id"] == query_id
        for share in assigned["machines"]
    }
