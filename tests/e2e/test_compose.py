"""A plan that a service made answers requests without it, as its Compose file says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

import circinus
from circinus.api.client import Refused
from circinus.api.phases import QueryPhase
from circinus.api.schemas.query import QueryRequest
from circinus.pipelines.errors import InvalidInput, Unavailable
from tests.api.cli.commands import invoke
from tests.e2e.compose_runner import RunningFile, composed
from tests.e2e.relay import WORDS
from tests.e2e.service_process import serving

TIERS = """
name: two
tiers:
  - name: device
    machines: 1
    price_usd_per_hour: 0.0
    dedicated: true
    speed_factor: 0.5
    emulated: true
  - {name: cloud, machines: 3, price_usd_per_hour: 1.0}
links:
  - {between: [device, cloud], bandwidth_mbit_per_s: 100, delay_s: 0.05, emulated: true}
"""
QUERY = {
    "pipeline": "relay",
    "data": {"examples": 20},
    "slo": {"accuracy": 0.9, "latency_s": 1.0},
    "restrictions": {"tiers": {"say": {"only": ["device"]}, "pass_on": {"only": ["cloud"]}}},
}
RELAY = "tests.e2e.relay:pipeline"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """Id of a query, its plan's file, and the same from a file that was exported."""
    folder = tmp_path_factory.mktemp("compose")
    with pytest.MonkeyPatch.context() as patch, serving(folder, TIERS, RELAY) as service:
        url = f"http://127.0.0.1:{service.port}"
        patch.setenv("CIRCINUS_EXTRA_PIPELINES", RELAY)
        with circinus.Client(url) as client:
            query = client.submit(QUERY)
            assert client.wait(query.id, timeout_s=120).phase is QueryPhase.SERVING
        asked = ("render", "--target", "compose", "--infrastructure", str(folder / "lab.yaml"))
        found = invoke(*asked, query.id, "--url", url)
        exported = folder / "plan.yaml"
        assert invoke("export", query.id, "--url", url, "--out", str(exported)).exit_code == 0
        again = invoke(*asked, str(exported))
        assert (found.exit_code, again.exit_code) == (0, 0), (found.output, again.output)
        yield query.id, found.stdout, again.stdout


@pytest.fixture(scope="module")
def running(rendered: tuple[str, str, str]) -> Iterator[RunningFile]:
    with (
        TemporaryDirectory(prefix="cq-") as folder,  # sockets have short paths
        composed(rendered[1], Path(folder), CIRCINUS_TOKEN="t") as running,
    ):
        yield running


def client_of(running: RunningFile, token: str = "t") -> circinus.Client:
    return circinus.Client(f"http://127.0.0.1:{running.published['requests']}", token=token)


def eventually(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.1)


@pytest.mark.slow
def test_a_file_and_the_service_tell_of_the_same_plan(rendered: tuple[str, str, str]) -> None:
    _, served, exported = map(yaml.safe_load, rendered)
    assert served == exported
    assert list(served["services"]) == ["requests", "device-0", "cloud-1"]


@pytest.mark.slow
def test_requests_are_answered_as_planned_without_a_service(
    rendered: tuple[str, str, str], running: RunningFile
) -> None:
    query_id = rendered[0]
    eventually(lambda: running.is_healthy("requests"))
    assert running.is_healthy("device-0")
    with client_of(running) as client:
        assert client.ready().status == "ok"
        began = time.perf_counter()
        reply = client.request(query_id, {"input": "one"})
        took_s = time.perf_counter() - began
        figures = client.metrics()
    workers = [running.processes[name].pid for name in ("device-0", "cloud-1")]
    assert reply.output == {"said": ["one", WORDS[1]], "by": workers}
    # The link is emulated, there as here.
    assert took_s > 0.05
    assert reply.transfer_s >= 0.05
    assert reply.emulated
    assert f'circinus_dispatch_answered_total{{query="{query_id}",tier="cloud"}} 1.0' in figures


@pytest.mark.slow
def test_what_is_no_request_to_the_plan_is_told_so(
    rendered: tuple[str, str, str], running: RunningFile
) -> None:
    eventually(lambda: running.is_healthy("requests"))
    with client_of(running) as client:
        with pytest.raises(Refused, match="path must exist"):
            client.request("q-other", {"input": 1})
        with pytest.raises(Refused, match="path must exist"):
            client.submit(QueryRequest.model_validate(QUERY))
        with pytest.raises(InvalidInput, match="example must be left out"):
            client.request(rendered[0], {"example": {"index": 1}})
    with client_of(running, token="wrong") as client, pytest.raises(Refused, match="Bearer"):
        client.request(rendered[0], {"input": 1})


@pytest.mark.slow
def test_a_worker_that_is_started_again_is_found_again(
    rendered: tuple[str, str, str], running: RunningFile
) -> None:
    query_id = rendered[0]
    eventually(lambda: running.is_healthy("requests"))
    running.processes["cloud-1"].kill()
    running.processes["cloud-1"].wait()
    assert not running.is_healthy("cloud-1")

    def is_answered() -> bool:
        try:
            client.request(query_id, {"input": 2, "timeout_s": 5})
        except (Unavailable, Refused):
            return False
        return True

    with client_of(running) as client:
        assert not is_answered()
        running.start("cloud-1")
        eventually(is_answered)
