"""Every query in `examples/`, from its file to answers of workers on two tiers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import yaml

from circinus.pipelines.registry import load_pipeline
from tests.e2e.service_process import ROOT, ServiceProcess

NAMES = sorted(path.stem for path in ROOT.glob("examples/*.yaml"))
REPORTING_SEED = 1  # of inputs that were not planned on, see `pipelines.catalog.material`
REQUESTS = 10
TRIES = 6  # of a request whose example is not made in time
BUSY = 4.0
"""Times as slow as usual a machine may be that tests other things, too."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that knows the built-in pipelines; one query after the other is deployed."""
    folder = tmp_path_factory.mktemp("examples")
    service = ServiceProcess(folder, extra={"CIRCINUS_EXTRA_PIPELINES": ""})
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_planned_deployed_on_two_tiers_and_served(
    name: str, service: ServiceProcess
) -> None:
    if lacking := load_pipeline(name).available():
        pytest.skip(f"missing: {', '.join(map(str, lacking))}")
    document = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    document["slo"]["latency_s"] *= BUSY
    document["limits"] |= {"profiling_s": 30, "configurations": 30}
    query_id = service.ask("POST", "/v1/queries", json=document).json()["id"]
    try:
        ended = service.wait_for_phase(query_id, "serving", "failed", "infeasible", "exhausted")
        assert ended["phase"] == "serving", ended["message"]
        plan = service.ask("GET", f"/v1/plans/{ended['plan_id']}").json()
        assert len(set(plan["placement"].values())) >= 2
        taken_s = [answered(service, query_id, index) for index in range(REQUESTS)]
    finally:
        service.ask("DELETE", f"/v1/queries/{query_id}/deployment")
    # A report, not a bound: a busy machine answers late.
    told = {
        "predicted_s": plan["latency_s"]["value"],
        "observed_s": sum(taken_s) / REQUESTS,
        "placement": plan["placement"],
    }
    print(f"\n{name}: {json.dumps(told)}")  # noqa: T201 - shown by `pytest -s`


def answered(service: ServiceProcess, query_id: str, index: int) -> float:
    body = {
        "example": {"index": index, "count": REQUESTS, "seed": REPORTING_SEED},
        "late": "serve",
    }
    for _ in range(TRIES):
        reply = service.ask("POST", f"/v1/queries/{query_id}/requests", json=body)
        if reply.status_code != 503:  # the examples are made slowly here; those made stay
            break
        time.sleep(int(reply.headers["retry-after"]))
    assert reply.status_code == 200, reply.text
    assert 0 <= reply.json()["score"] <= 1
    return float(reply.json()["latency_s"])
