"""What a deployed plan promised beside what it did, over HTTP to a service in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import yaml
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from circinus.api.cli import app
from circinus.api.client import Client
from circinus.api.control.service import Service
from circinus.api.demo.report import Report, problems_of
from circinus.api.demo.report import verified as verify
from circinus.api.demo.sending import ObservedTraffic
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from circinus.api.text.screen import json_text
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import Outlook
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, SloState
from tests.api.fakes import PIPELINE, FakeCatalogue, FakeDeployer, add_planned, parts, plan

LOOPBACK = "http://127.0.0.1:8350"
REQUESTS, SEED = 20, 5
TIGHT = {"accuracy": 0.5, "latency_s": 0.2}  # a request takes 0.25 s
SLO = {"accuracy": 0.5, "latency_s": 1.0}


class Verified:
    """A service with one query that serves, whose answers add `by`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: list[int] = []

    def report(
        self,
        *,
        by: int = 1,
        serving: bool = True,
        slo: Mapping[str, object] = SLO,
        future: Outlook | None = None,
        requests: int | None = REQUESTS,
        examples: int | None = None,
    ) -> Report:
        deployer = FakeDeployer()
        served = replace(plan(by=by), future=future)
        deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=served)
        catalogue = FakeCatalogue({"add": replace(PIPELINE, example_count=examples)})
        made = replace(parts(self._folder, {}), catalogue=catalogue)
        service = Service(made, deployer)
        store = service.parts.store
        add_planned(store, "q-1", served, slo=slo)
        if serving:
            store.move("q-1", QueryPhase.SERVING, at=1.0)
        try:
            with TestClient(application_of(service), base_url=LOOPBACK) as inner:
                transport = httpx.MockTransport(lambda request: _passed_on(inner, request))
                with Client(LOOPBACK, transport=transport) as client:
                    return verify(client, "q-1", requests, SEED, ManualClock(), self._tell)
        finally:
            store.close()

    @property
    def told(self) -> list[int]:
        return self._told

    def _tell(self, _query_id: str, done: int, _of: int) -> None:
        self._told.append(done)


def _passed_on(inner: TestClient, request: httpx.Request) -> httpx.Response:
    answer = inner.request(
        request.method,
        str(request.url),
        content=request.content,
        headers={"content-type": "application/json"},
    )
    return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


@pytest.fixture
def verified(tmp_path: Path) -> Verified:
    return Verified(tmp_path)


def test_a_query_that_does_not_serve_cannot_be_verified(verified: Verified) -> None:
    with pytest.raises(InvalidInput, match="phase must be serving, got 'waiting'"):
        verified.report(serving=False)


def test_inputs_that_were_planned_on_prove_nothing(
    verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.api.test_verifying.SEED", 0)
    with pytest.raises(InvalidInput, match="seed must not be that of the query's data, got 0"):
        verified.report()


def test_wrong_answers_break_the_accuracy(verified: Verified) -> None:
    report = verified.report(by=0)
    assert report.problems == ("accuracy 0 is below the objective, 0.5",)
    assert not report.worked


def test_requests_that_failed_count_as_0() -> None:
    observed = ObservedTraffic(
        latency_s=[0.1] * 8, score=[1.0] * 8, failures=["502 add failed"] * 2, emulated=False
    )
    assert observed.accuracy is not None
    assert (observed.accuracy.value, observed.accuracy.inputs) == (0.8, 10)


def test_slow_answers_break_the_latency(verified: Verified) -> None:
    report = verified.report(slo=TIGHT)
    assert report.problems == ("mean latency 250 ms is above the objective, 200 ms",)


def test_the_demo_forgives_a_latency_no_more_than_verify_does(verified: Verified) -> None:
    report = verified.report(slo={**SLO, "latency_s": 0.24})  # a request takes 0.25 s
    latency = [problem for problem in problems_of(report.served) if "latency" in problem]
    assert latency == [f"{report.served[0].name}: {report.problems[0]}"]


def test_a_tail_that_is_surely_late_is_a_problem_of_few_requests_too(verified: Verified) -> None:
    # The second slowest of 20 is below the 99th percentile with 98.3 %.
    report = verified.report(slo={**TIGHT, "latency_statistic": "p99"})
    assert report.problems == ("p99 latency 250 ms is above the objective, 200 ms",)


def test_a_plan_whose_mean_is_fine_and_whose_tail_is_not_is_violated() -> None:
    # 30 of 200 requests are slow: the mean is 0.1 * 0.85 + 0.5 * 0.15 = 0.16 s.
    observed = ObservedTraffic(
        latency_s=[0.1] * 170 + [0.5] * 30, score=[1.0] * 200, failures=(), emulated=False
    )

    assert observed.latency_state(LatencyStatistic.MEAN, 0.2) is SloState.MET
    assert observed.latency_state(LatencyStatistic.P95, 0.2) is SloState.VIOLATED
    assert observed.latency_state(LatencyStatistic.P50, 0.2) is SloState.MET


def test_an_observed_accuracy_stays_within_0_and_1() -> None:
    accuracy = ObservedTraffic(
        latency_s=[0.1] * 30, score=[1.0] * 29 + [0.9], failures=(), emulated=False
    ).accuracy

    assert accuracy is not None
    assert 0.85 < accuracy.low < accuracy.value < accuracy.high <= 1.0


def test_a_plan_that_holds_is_told_with_both_figures(verified: Verified) -> None:
    report = verified.report()
    assert report.worked
    document = json.loads(json_text(report.document()))
    (query,) = document["queries"]
    assert query["observed"]["requests"] == REQUESTS
    assert query["observed"]["mean_s"]["value"] == 0.25
    assert query["observed"]["accuracy"]["value"] == 1.0
    assert query["predicted"]["latency_s"]["value"] == 0.2
    assert verified.told == list(range(1, REQUESTS + 1))


def test_inputs_that_were_not_planned_on_are_held_against_what_is_expected_of_such(
    verified: Verified,
) -> None:
    ahead = Estimate(value=0.24, low=0.2, high=0.28, confidence=0.95, inputs=10)
    report = verified.report(future=Outlook(accuracy=ahead, latency_s=ahead))
    (query,) = json.loads(json_text(report.document()))["queries"]
    assert query["observed"]["planned_on"] == REQUESTS / 2
    assert query["predicted"]["latency_s"]["value"] == 0.24
    assert (query["predicted"]["latency_s"]["low"], query["off"]) == (0.2, [])


@pytest.mark.parametrize(("examples", "sent"), [(12, 12), (201, 200), (None, 200)])
def test_no_more_requests_are_sent_by_themselves_than_there_are_examples(
    verified: Verified, examples: int | None, sent: int
) -> None:
    report = verified.report(requests=None, examples=examples)
    (query,) = json.loads(json_text(report.document()))["queries"]
    assert (query["observed"]["requests"], verified.told[-1]) == (sent, sent)


def test_a_job_is_printed_without_a_service() -> None:
    options = ["--namespace", "lab", "--release", "r", "--image", "i:1", "--requests", "50"]
    done = CliRunner().invoke(app, ["verify", "q-1", "--job", *options])
    assert done.exit_code == 0, done.output
    job = yaml.safe_load(done.stdout)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["kind"], container["image"]) == ("Job", "i:1")
    assert container["args"][:4] == ["verify", "q-1", "--requests", "50"]
    url, token = container["env"]
    assert url["value"] == "http://r.lab.svc:8350"
    assert token["valueFrom"]["secretKeyRef"] == {"name": "r-token", "key": "token"}
    done = CliRunner().invoke(app, ["verify", "q-1", "--job", *options, "--token-secret", "mine"])
    (container,) = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]["containers"]
    assert container["env"][1]["valueFrom"]["secretKeyRef"]["name"] == "mine"


def test_nobody_answers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["verify", "q-1", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 1
    assert done.stdout == ""
