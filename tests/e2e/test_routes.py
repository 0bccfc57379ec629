"""Routes through the service: put, served by unlike workers, killed, changed, removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.e2e.service_process import ON_ONE_TIER, ROOT, ServiceProcess, serving

pytestmark = pytest.mark.slow
PIPELINE = "tests.deploy.routed_pipelines:doubled"


def unit(hardware: str, price: float, **more: object) -> dict[str, object]:
    return {
        "name": hardware,
        "model": "double",
        "hardware": hardware,
        "framework": "python",
        "price_usd_per_hour": price,
        "most_per_s": 20.0,
        "latency_s": 0.2,
        "knobs": {"double": {"hardware": hardware}},
        **more,
    }


def route(*units: dict[str, object], **more: object) -> dict[str, Any]:
    told = {"demand_per_s": 10.0, "latency_s": 0.5, "pipeline": "doubled", "units": units}
    return {"name": "doubling", "regimes": {"settle_s": 1.0}, **told, **more}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with serving(tmp_path_factory.mktemp("routes"), ON_ONE_TIER, PIPELINE) as started:
        yield started


def put(service: ServiceProcess, body: dict[str, Any], name: str = "doubling") -> httpx.Response:
    return service.ask("PUT", f"/v1/routes/{name}", json=body)


def status(service: ServiceProcess) -> dict[str, Any]:
    found: dict[str, Any] = service.ask("GET", "/v1/routes/doubling").json()
    return found["status"] or {}


def units(service: ServiceProcess) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in status(service).get("units", [])}


def ask(service: ServiceProcess, value: int) -> httpx.Response:
    body = {"input": value, "timeout_s": 20}
    return service.ask("POST", "/v1/routes/doubling/requests", json=body)


def workers(service: ServiceProcess) -> list[psutil.Process]:
    found = service.serving_process.children(recursive=True)
    return [each for each in found if "circinus.deploy.workers.server" in each.cmdline()]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({"name": "other"}, "name must be doubling, as in the path"),
        ({"pipeline": None}, "pipeline must be given"),
        ({"pipeline": "none"}, "pipeline must be registered"),
        ({"units": [unit("none", 1.0)]}, r"double.hardware must be one of"),
        ({"units": [unit("quick", 1.0), unit("quick", 2.0)]}, "unit must not repeat"),
        ({"latency_s": 0.1}, "latency_s must be at least that of one unit"),
        ({"demand_per_s": 1e6}, "demand_per_s must be served by at most 64 workers"),
        ({"regimes": {"settle_s": 10, "longest_settle_s": 1}}, "longest_settle_s must be >="),
        ({"units": [unit("quick", 1.0, share=2.0)]}, "share"),
    ],
)
def test_a_route_that_cannot_be_served_is_refused_with_its_field_and_kept_out(
    service: ServiceProcess, body: dict[str, object], rule: str
) -> None:
    answer = put(service, {**route(unit("quick", 1.0)), **body})

    assert answer.status_code == 422, answer.text
    assert rule in answer.text
    assert service.ask("GET", "/v1/routes").json() == {"items": []}


def test_what_is_no_route_is_not_found(service: ServiceProcess) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/requests")):
        body = {"input": 1} if method == "POST" else None
        answer = service.ask(method, f"/v1/routes/none{path}", json=body)
        assert answer.status_code == 404, (method, answer.text)


def test_a_route_is_served_verified_changed_and_removed_from_the_command_line(
    service: ServiceProcess, tmp_path: Path
) -> None:
    def circinus(*arguments: str) -> dict[str, Any]:
        url = {"CIRCINUS_URL": f"http://127.0.0.1:{service.port}", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "circinus.api.cli", "route", *arguments, "--json"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **url}
        )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    file = tmp_path / "route.yaml"
    asked = route(unit("quick", 1.0), unit("slow", 5.0), unit("faulty", 0.1))
    file.write_text(json.dumps(asked))
    circinus("apply", str(file))

    def settled() -> bool:
        found = units(service)
        proved = found and all(each["proof"] is not None for each in found.values())
        return bool(proved) and {n: u["running"] for n, u in found.items()} != {}

    service.wait_for(settled, "all outputs to be verified")
    found = units(service)
    assert found["faulty"]["why"].startswith("outputs do not agree: score 0.500")
    assert found["slow"]["proof"]["agrees"]

    told = circinus("request", "doubling", "--input", "21")
    assert told["output"] == 42
    assert set(told["tier_s"]) <= {"quick", "slow"}

    asked["units"] = asked["units"][:2]
    file.write_text(json.dumps(asked))
    circinus("apply", str(file))
    service.wait_for(
        lambda: {n: u["running"] for n, u in units(service).items()} == {"quick": 1, "slow": 0},
        "the cheapest alone to run",
    )
    assert circinus("status", "doubling")["status"]["regime"] == "cost"
    assert ask(service, 4).json()["tier_s"].keys() == {"quick"}

    metrics = service.ask("GET", "/metrics").text
    assert 'circinus_route_running{route="doubling",unit="quick"} 1.0' in metrics
    assert 'circinus_route_capacity_mode{route="doubling"} 0.0' in metrics

    circinus("remove", "doubling")
    service.wait_for(lambda: not workers(service), "the workers to end")
    assert ask(service, 4).status_code == 404
    assert circinus("status") == {"items": []}


def test_requests_outlive_all_workers_of_a_unit_and_the_service_itself(
    service: ServiceProcess,
) -> None:
    body = route(unit("quick", 1.0), unit("slow", 5.0), verify={"probes": 0})
    assert put(service, body).status_code == 200
    service.wait_for(lambda: ask(service, 1).status_code == 200, "an answer")

    for process in workers(service):
        process.send_signal(signal.SIGKILL)
    assert ask(service, 5).json()["output"] == 10

    service.kill()
    assert ask(service, 6).json()["output"] == 12  # those who answer are not the service
    service.start()
    before = {process.pid for process in workers(service)}
    service.wait_for(lambda: status(service) != {}, "the route to be told of")
    assert {process.pid for process in workers(service)} & before
    assert service.ask("DELETE", "/v1/routes/doubling").status_code == 204
    service.wait_for(lambda: not workers(service), "the workers to end")


def test_a_killed_serving_process_serves_its_routes_again(service: ServiceProcess) -> None:
    body = route(unit("quick", 1.0), verify={"probes": 0})
    assert put(service, body).status_code == 200
    service.wait_for(lambda: ask(service, 1).status_code == 200, "an answer")

    service.serving_process.kill()

    def answered() -> bool:
        try:
            return ask(service, 7).status_code == 200
        except httpx.HTTPError:  # nobody listens
            return False

    service.wait_for(answered, "an answer of the next serving process")
    assert service.ask("DELETE", "/v1/routes/doubling").status_code == 204


def test_other_units_take_over_without_a_gap(
    service: ServiceProcess,
) -> None:
    body = route(unit("quick", 1.0), verify={"probes": 0})
    assert put(service, body).status_code == 200
    service.wait_for(lambda: ask(service, 1).status_code == 200, "an answer")

    body["units"] = [unit("slow", 1.0)]
    assert put(service, body).status_code == 200

    def moved() -> bool:
        answer = ask(service, 8)
        assert answer.status_code == 200, answer.text
        return set(answer.json()["tier_s"]) == {"slow"}

    service.wait_for(moved, "the other unit to answer")
    assert service.ask("DELETE", "/v1/routes/doubling").status_code == 204


def test_the_example_is_served_by_what_reads_well_and_costs_least(tmp_path: Path) -> None:
    file = ROOT / "examples" / "routes" / "reading.yaml"
    body = yaml.safe_load(file.read_text())
    with serving(tmp_path, ON_ONE_TIER, PIPELINE) as fresh:
        answer = fresh.ask("PUT", "/v1/routes/reading", json=body)
        assert answer.status_code == 200, answer.text

        def found() -> dict[str, dict[str, Any]]:
            told = fresh.ask("GET", "/v1/routes/reading").json()["status"] or {"units": []}
            return {each["name"]: each for each in told["units"]}

        def settled() -> bool:
            units = found()
            proofs = [each["proof"] is not None for each in units.values()]
            return bool(proofs) and all(proofs) and units["slice"]["running"] == 1

        fresh.wait_for(settled, "all outputs to be verified")
        units = found()
        assert "outputs do not agree" in units["light"]["why"]
        assert units["machine"]["proof"]["agrees"]
        fresh.wait_for(lambda: found()["slice"]["part"] == 1.0, "the cheapest alone to serve")
