"""The OpenAPI document is true: all checks of schemathesis, on a real service, with real ids.

`CIRCINUS_TEST_CASES` says how many cases are tried at least; with a token it tries all bounds that
the document states besides, which are more.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from tests.e2e.echo import EXTRA
from tests.e2e.service_process import ServiceProcess, serving

CASES = int(os.environ.get("CIRCINUS_TEST_CASES", "150"))
SEED = int(os.environ.get("CIRCINUS_TEST_SEED", "1"))
TOKEN = "secret-token"
TWO_TIERS = """
name: two
tiers:
  - {name: device, machines: 1, price_usd_per_hour: 0.0, dedicated: true}
  - {name: cloud, machines: 2, price_usd_per_hour: 1.0}
  - {name: typed, types: [{name: small, machines: 2, price_usd_per_hour: 9.0}]}
links:
  - {between: [device, cloud], bandwidth_mbit_per_s: 100, delay_s: 0.0001, emulated: true}
  - {between: [cloud, typed], bandwidth_mbit_per_s: 100}
"""
ECHO = {"pipeline": "echo", "data": {"examples": 20}, "slo": {"accuracy": 0.5, "latency_s": 1.0}}

# No other query uses that tier, whose machines are dear.
ON_TYPES = {**ECHO, "restrictions": {"tiers": {"repeat": {"only": ["typed"]}}}}

BEYOND_SCHEMAS: Sequence[tuple[str, str, str]] = (
    # field, rule (both whole, as regular expressions), why no schema can state it
    ("pipeline", "must be registered .*", "others are registered tomorrow"),
    ("data.dataset", "must have been handed over: .*", "as there are"),
    (r"data\.examples|example\.count", r"must be 1 to \d+", "as the service is set"),
    ("draws", "must be among .*", "operators are those of the pipeline"),
    ("restrictions.*", "must be among .*", "operators and knobs are those of the pipeline"),
    ("only|never", "must not repeat", "1 and true are the same choice"),
    ("restrictions.*", "must leave .*", "as many values as the knobs of the pipeline have"),
    ("planning.*", "must be left out with the strategy .*", "the strategy may be the service's"),
    ("planning.*", "must be random with the stopping rule .*", "so may the stopping rule"),
    ("most_usd_per_hour", "must be left out unless .*", "the objective may be the service's"),
    ("device.*", "must be among .*|must be left out.*", "devices are those of the infrastructure"),
    ("cursor", "must be a next_cursor of a page", "it is opaque"),
    ("links|machines|price|speed|bandwidth", "must name .*|must be among .*", "as there are"),
    (r"accuracy|latency|cost(_per_1000)?|(price|machines|speed|bandwidth)\..*",
     "must be from .* to .*|must leave a whole number",
     "what a change leads to depends on the figure before"),
    ("cost|cost_per_1000", "must be a value: the query bounds no cost.*", "of that query"),
    ("rate", "must .*", "two numbers in a text"),
    (r"pool\..*", "must be among .*|must be shared: .*|must have machine types", "as there are"),
    (r"pool\..*", "must have at least one slice", "the counts together"),
    ("tier", "must be one with machine types that the query's plan uses.*", "of that query"),
    ("rate_per_s", "must be given, or budget_usd_per_hour: .*", "while no requests came"),
    ("latencies", "must not repeat|must have every type at every batch", "pairs in a list"),
    ("prices|most", "must have every type .*|must be among .*", "those of the latencies"),
    ("types", "must be among .*", "those of the latencies"),
    ("arrivals", "must have one of .*", "what is tried is not always held to `contains`"),
    ("batch", "must be in .*, the sizes that were measured", "those of the latencies"),
    ("leaving", "must be live queries", "as there are"),
    ("plan .*.demand", "must be among .*", "as there are"),
    ("queries|query .*.plans", "must not repeat", "ids within a list of objects"),
    ("example.index", "must be less than count, .*", "one number binds another"),
    (r"input.*|key of input.*", "must .*", "what is marked by $ is read"),
    ("name", "must be .*, as in the path", "one text in two places"),
    ("pipeline", "must be given: the service runs .*", "a route file without one is one, too"),
    ("name of a unit", "must not repeat", "names within a list of objects"),
    ("latency_s", "must be at least that of one unit", "one number binds another"),
    ("longest_settle_s", "must be >= settle_s", "one number binds another"),
    (r"[^.]*\.[^.]*|operator.*", "must be .*|must be among .*", "knobs are those of the pipeline"),
    ("demand_per_s", "must be served by at most .* workers", "as units are said to be"),
)  # fmt: skip
"""Rules for which an input is refused that the document takes for a good one."""
_RULES = [
    (re.compile(field, re.DOTALL), re.compile(rule, re.DOTALL))
    for field, rule, _ in BEYOND_SCHEMAS
]

AGREED: Sequence[tuple[str, str, int, str, str]] = (
    # check, operation, status, beginning of the problem's detail, why it is right
    (
        "not_a_server_error",
        "POST /v1/queries/{query_id}/requests",
        503,
        "deadline of ",
        "the client's own time-out is over: how long an answer takes no schema knows",
    ),
    (
        "not_a_server_error",
        "POST /v1/queries/{query_id}/requests",
        503,
        "query q-",
        "it is just being deployed, or waits for machines: nothing is wrong with the request",
    ),
    (
        "ensure_resource_availability",
        "POST /v1/queries",
        404,
        "pool must exist",
        "a query has no pool until somebody chooses one",
    ),
    (
        "use_after_free",
        "GET /v1/queries/{query_id}/deployment",
        200,
        "",
        "that a query has no deployment is told as its phase `none`, before and after it had one",
    ),
    (
        "positive_data_acceptance",
        "POST /v1/schedule:preview",
        413,
        "body must have at most ",
        "all parts together may be too large, each of them being as large as it may be",
    ),
    (
        "positive_data_acceptance",
        "POST /v1/schedule:preview",
        400,
        "body must have at most 5000 values",
        "likewise: no schema bounds how many values all parts have together",
    ),
    (
        "positive_data_acceptance",
        "POST /v1/pools:choose",
        400,
        "body must have at most 5000 values",
        "likewise",
    ),
)
CHEAP = {"method": "bound", "requests": 100}  # a process that simulates is slow
DEMAND = {"tier": "cloud", "share": 0.5}
RESTRICTIONS = {
    "tiers": {"repeat": {"only": ["device"]}},
    "knobs": {"repeat": {"loudly": {"never": [True]}}},
}


@dataclass(frozen=True)
class Finding:
    """What a check has against an answer."""

    check: str
    operation: str
    title: str
    status: int
    rules: Sequence[tuple[str, str, str]]
    detail: str  # of the problem document; empty: it is none
    message: str
    curl: str

    @property
    def is_beyond_schemas(self) -> bool:
        """Whether a good input was refused for rules that are all listed above, or as agreed."""
        refused = self.check == "positive_data_acceptance" and self.status == 422
        if refused and self.rules:
            return all(map(_is_listed, self.rules))
        own = (self.check, self.operation, self.status)
        return any(
            own == (check, operation, status) and self.detail.startswith(detail)
            for check, operation, status, detail, _ in AGREED
        )


def _is_listed(violation: tuple[str, str, str]) -> bool:
    field, rule, _ = violation
    return any(f.fullmatch(field) and r.fullmatch(rule) for f, r in _RULES)


@contextmanager
def told_service(
    folder: Path, token: str | None
) -> Iterator[tuple[ServiceProcess, Mapping[str, Sequence[str]]]]:
    """Run a service with a query that serves, one that failed, and data; give their ids."""
    settings = {} if token is None else {"token": token}
    settings |= {"log_level": "warning", "queue_limit": "100000", "datasets": str(folder / "sets")}
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with serving(folder, TWO_TIERS, EXTRA, **settings) as service:
        service.headers |= headers
        yield service, ids_in(service)


def ids_in(service: ServiceProcess) -> Mapping[str, Sequence[str]]:
    served, changing = service.submit(**ECHO), service.submit(**ECHO)
    pooled = service.submit(**ON_TYPES)
    failed = service.submit(**ECHO | {"pipeline": "mute"})
    for query_id in (served, changing, pooled, failed):
        found = service.wait_for_phase(query_id, "serving", "failed", "infeasible", "exhausted")
        assert found["phase"] == ("failed" if query_id == failed else "serving"), found
    kept = httpx.post(
        f"http://127.0.0.1:{service.port}/v1/datasets",
        content=LINES[0],
        headers={**service.headers, "Content-Type": "application/jsonl"},
        trust_env=False,
    )
    return {
        "query_id": [served, changing, pooled, failed],
        "changing": [changing, failed],
        "served": [served],
        "pooled": [pooled],
        "plan_id": [service.query(served)["plan_id"]],
        "dataset_id": [kept.json()["id"]],
        "pipeline": ["echo"],
    }


def _zipped(lines: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as folder:
        # equal lines are equal bytes, whenever they are drawn: no time of day
        folder.writestr(
            zipfile.ZipInfo("expected.jsonl"), b'{"file": "one.json", "expected": 1}\n'
        )
        folder.writestr(zipfile.ZipInfo("one.json"), lines)
    return content.getvalue()


LINES = [b'{"input": %d, "expected": %d}\n' % (i, i) for i in range(3)]


@pytest.fixture(autouse=True)
def data_sets() -> None:
    """Let schemathesis hand over data sets: it knows nothing of their formats."""
    lines = st.sampled_from(LINES)
    for kind in ("application/jsonl", "application/x-ndjson"):
        schemathesis.openapi.media_type(kind, lines)
    schemathesis.openapi.media_type("application/zip", lines.map(_zipped))


def findings(
    service: ServiceProcess,
    ids: Mapping[str, Sequence[str]],
    *,
    cases: int,
    seed: int,
    bounds: bool = True,
) -> tuple[list[Finding], Counter[str]]:
    """Return what all checks find wrong in at least so many cases, and how many of each kind.

    `bounds`: all that the document states are tried besides.
    """
    document = service.ask("GET", "/openapi.json").json()
    operations = sum(len(methods) for methods in document["paths"].values())
    for name, examples in GOOD.items():
        document["components"]["schemas"][name]["examples"] = examples
    token = service.headers.get("Authorization", "").removeprefix("Bearer ")
    config: dict[str, Any] = {
        "seed": seed,
        "continue-on-failure": True,
        "base-url": f"http://127.0.0.1:{service.port}",
        "generation": {
            "max-examples": -(-cases // operations),
            "no-shrink": True,
            "database": "none",
        },
        "phases": {"coverage": {"enabled": bounds}},
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}},
        "dictionaries": {name: {"values": list(values)} for name, values in ids.items()},
        "parameters": {
            "path.query_id": {"dictionary": "query_id", "probability": 0.8},
            "path.plan_id": {"dictionary": "plan_id", "probability": 0.8},
            "path.dataset_id": {"dictionary": "dataset_id", "probability": 0.5},
            "body.pipeline": {"dictionary": "pipeline", "probability": 0.9},
        },
        # Choosing a pool may take a minute, and waits for who asked before.
        "request-timeout": 70.0,
        # What ends a query has some of its own, or no other route would see one that serves.
        "operations": [
            {"include-path": path, **method, "parameters": {"path.query_id": {"dictionary": name}}}
            for path, method, name in OWN_QUERIES
        ],
        "auth": {"openapi": {"Token": {"bearer": token}}} if token else {},
    }
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(config))
    found: list[Finding] = []
    tried = Counter[str]()
    for event in from_schema(schema).execute():
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.NonFatalError):
            found.append(Finding("error", str(event.label), "", 0, (), "", str(event.info), ""))
        if isinstance(event, events.ScenarioFinished):
            tried[event.phase.value] += len(event.recorder.interactions)
            found += findings_in(event.recorder)
    return found, tried


GOOD: Mapping[str, Sequence[object]] = {
    "ChoosePoolBody": [
        {
            "latencies": [{"type": "x", "batch": 1, "mean_ms": 5.0}],
            "qos_ms": 50.0,
            "budget_usd_per_hour": 2.0,
            "prices": [{"name": "x", "price_usd_per_hour": 1.0, "date": "2026-01-31"}],
            "mix": [1],
            **CHEAP,
        }
    ],
    "ChooseQueryPoolBody": [{"tier": "typed", "rate_per_s": 5.0, **CHEAP}],
    "EmulationBody": [{"links": [{"between": ["device", "cloud"], "bandwidth_mbit_per_s": 50}]}],
    "MachinesBody": [{"machines": {"cloud": 2}}, {"machines": {"cloud": None}}],
    "PoolBody": [{"slices": {"typed": {"small": 1}}}, {"slices": {"typed": {"small": 3.0}}}],
    "PreviewBody": [
        {
            "machines": {"cloud": 1},
            "arriving": [{"id": "a", "plans": [{"id": "p", "demand": [DEMAND, DEMAND]}]}],
            "quotas": {"acme": 0.5},
        }
    ],
    "QueryRequest": [ECHO, ECHO | {"priority": 1.0, "restrictions": RESTRICTIONS}],
    "ReplanBody": [{"accuracy": "0.9x"}, {"data": {"examples": 20, "seed": 2**63 - 1}}],
    "RequestBody": [{"input": {"of": "any kind"}}, {"example": {"index": 3}}],
    "WhatIfBody": [{"latency": "0.8x", "price": {"cloud": "2x"}, "machines": {"cloud": "+1"}}],
}
"""Bodies with the names of this service: what is drawn has other ones, and is refused."""
OWN_QUERIES: Sequence[tuple[str, Mapping[str, str], str]] = (
    ("/v1/queries/{query_id}:replan", {}, "changing"),
    ("/v1/queries/{query_id}/deployment", {"include-method": "DELETE"}, "changing"),
    ("/v1/queries/{query_id}/pool", {}, "pooled"),
    ("/v1/queries/{query_id}/pool:choose", {}, "pooled"),
    ("/v1/queries/{query_id}/requests", {}, "served"),
)
REFUSALS = ["400", "401", "404", "405", "409", "413", "415", "422", "429"]


def findings_in(recorder: ScenarioRecorder) -> Iterator[Finding]:
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is None:
                continue
            failure = check.failure_info.failure
            response = recorder.interactions[case_id].response
            problem = {} if response is None else _problem_in(response)
            yield Finding(
                check=check.name,
                operation=str(failure.operation),
                title=failure.title,
                status=0 if response is None else response.status_code,
                rules=[
                    (each["field"], each["rule"], each["value"])
                    for each in problem.get("errors", ())
                ],
                detail=problem.get("detail", ""),
                message=failure.message,
                curl=check.failure_info.code_sample,
            )


def _problem_in(response: Response) -> dict[str, Any]:
    if response.headers.get("content-type") != ["application/problem+json"]:
        return {}
    problem: dict[str, Any] = json.loads(response.content)
    return problem


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("token", [None, TOKEN], ids=["without a token", "with a token"])
def test_no_answer_is_unlike_what_the_document_says(token: str | None, tmp_path: Path) -> None:
    with told_service(tmp_path, token) as (service, ids):
        # Bounds and most cases are the same whoever asks: trying them takes minutes.
        shown = token is not None
        cases = CASES if shown else CASES // 3
        found, tried = findings(service, ids, cases=cases, seed=SEED, bounds=shown)
    assert [each for each in found if not each.is_beyond_schemas] == []
    assert tried.total() >= cases
    assert tried["stateful"] > 0
