"""The benchmark's Job: a valid name, what it may do, and a command line that exists."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from circinus.api.cli import app
from circinus.deploy.kubernetes.fitness.benchmark_job import (
    BenchmarkSettings,
    benchmark_job,
    name_of,
)
from circinus.pipelines.errors import InvalidInput

SETTINGS = BenchmarkSettings(
    query_id="q-1",
    requests=50,
    seed=7,
    namespace="ns",
    image="circinus/service:1",
    service_url="http://circinus.ns.svc:8350",
    token_secret="circinus-token",
)
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requests": 1}, "requests must be at least 2, got 1"),
        ({"pull_policy": "Sometimes"}, "pull_policy must be one of IfNotPresent, Always, Never"),
    ],
)
def test_what_makes_no_benchmark_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(SETTINGS, **change)  # type: ignore[arg-type]  # wrong on purpose


@given(st.text(min_size=1), st.integers(2, 10_000), st.integers(0))
def test_any_query_gives_a_name_that_a_pod_may_have(query: str, requests: int, seed: int) -> None:
    settings = replace(SETTINGS, query_id=query, requests=requests, seed=seed)
    assert DNS_LABEL.fullmatch(name_of(settings))
    assert name_of(settings) == benchmark_job(settings)["metadata"]["name"]


def test_the_command_line_has_what_the_job_calls() -> None:
    (container,) = benchmark_job(SETTINGS)["spec"]["template"]["spec"]["containers"]
    name, *words = container["args"]
    verify = get_command(app).commands[name]  # type: ignore[attr-defined]  # a group
    context = verify.make_context(name, list(words), resilient_parsing=False)
    assert context.params["query_id"] == "q-1"
    assert (context.params["requests"], context.params["seed"]) == (50, 7)
    assert context.params["as_json"]


def test_it_runs_once_without_rights_and_as_nobody() -> None:
    spec = benchmark_job(SETTINGS)["spec"]
    pod = spec["template"]["spec"]
    assert (spec["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all(e["name"] != "CIRCINUS_TOKEN" or "valueFrom" in e for e in container["env"])


def test_packages_of_the_nodes_are_mounted_only_where_they_are_named() -> None:
    def paths(settings: BenchmarkSettings) -> list[str]:
        pod = benchmark_job(settings)["spec"]["template"]["spec"]
        return [v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v]

    assert paths(SETTINGS) == []
    assert paths(replace(SETTINGS, environment="/opt/env")) == ["/opt/env"]
