"""`make demo-cluster`: a query as an object, from `kubectl apply` to answers over the pod network.

Starts a throw-away cluster with a real node per tier, builds the images, installs the chart,
which measures what pods there are like, applies a PipelineQuery, waits until its plan serves,
sends requests, compares what was predicted with what was observed, and ends everything. Exits
with 1 if an objective was surely missed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from circinus.api.client import Client
from circinus.api.demo.report import comparison, verified
from circinus.api.schemas.deployments import ExampleReference, Late, RequestBody
from circinus.api.schemas.plans import PlanView
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.registry import load_pipeline
from tests.cluster import debian, images, programs, progress, real_nodes
from tests.cluster.api import eventually
from tests.cluster.cluster import running
from tests.cluster.processes import NotReady
from tests.cluster.release import Release, installed

NAME = "reading"
REQUESTS = 100
VERIFIED = 400
SEED = 11
QUERY: dict[str, Any] = {
    "kind": "PipelineQuery",
    "apiVersion": "circinus.io/v1alpha1",
    "metadata": {"name": NAME},
    "spec": {
        "pipeline": "digits",
        "data": {"examples": 60},
        "slo": {"accuracy": 0.6, "latency_s": 0.15},
        "limits": {"profiling_s": 60.0, "configurations": 10},
        "restrictions": {
            "tiers": {"sampler": {"only": ["device"]}, "classifier": {"only": ["cloud"]}}
        },
    },
}
"""Of the built-in pipeline, over two tiers, whichever plan is the cheapest."""
_SERVES_WITHIN_S = 400.0
_SETTLED = ("serving", "infeasible", "exhausted", "failed", "refused")

Told = Callable[[str], object]
"""Is given a line for people."""


def objects(release: Release) -> str:
    """Return the path of the namespace's queries."""
    return f"/apis/circinus.io/v1alpha1/namespaces/{release.namespace}/pipelinequeries"


def status_of(release: Release) -> dict[str, Any]:
    """Return what the object says of the query; empty: nothing yet, or it is gone."""
    found = release.cluster.api.get(f"{objects(release)}/{NAME}") or {}
    status: dict[str, Any] = found.get("status", {})
    return status


def apply(release: Release) -> str:
    """Make the object, by kubectl where there is one; give what that says."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        release.cluster.api.create(objects(release), QUERY)
        return f"pipelinequery.circinus.io/{NAME} created (there is no kubectl here)"
    flags = ["--kubeconfig", str(release.cluster.kubeconfig), "-n", release.namespace]
    command = [kubectl, *flags, "apply", "-f", "-"]
    done = subprocess.run(
        command, input=json.dumps(QUERY), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def serving(release: Release, told: Told) -> dict[str, Any]:
    """Apply the query, and give its status once it serves."""
    told(apply(release))
    phases: list[str] = []

    def settled() -> bool:
        phase = status_of(release).get("phase")
        if phase and phases[-1:] != [phase]:
            phases.append(phase)
            told(f"  {NAME} is {phase}")
        return phase in _SETTLED

    eventually(settled, "a query that is planned and deployed", timeout_s=_SERVES_WITHIN_S)
    status = status_of(release)
    assert status["phase"] == "serving", status
    return status


def latencies_of_right_answers(client: Client, query_id: str, plan: PlanView) -> list[float]:
    """Send the requests one by one; each must answer what the pipeline answers in this process."""
    pipeline = load_pipeline("digits")
    assert pipeline.examples is not None
    chosen = ConfigurationSpace(pipeline.graph).parse(plan.configuration)
    latencies = []
    for index, example in enumerate(pipeline.examples(REQUESTS, SEED).examples):
        reference = ExampleReference(index=index, seed=SEED, count=REQUESTS)
        reply = client.request(query_id, RequestBody(example=reference, late=Late.SERVE))
        expected: Payload = pipeline.run(example.input, chosen)
        assert reply.output == expected, f"request {index}"
        assert reply.score == pipeline.score_of(expected, example.expected)
        latencies.append(reply.latency_s)
    return latencies


def compared(plan: PlanView, latencies: list[float]) -> str:
    """Return predicted, for inputs that were not planned on, beside observed, in words."""
    predicted = (plan.future or plan).latency_s
    tiers = sorted(set(plan.placement.values()))
    return (
        f"{len(latencies)} right answers over {', '.join(tiers)}: mean latency at most "
        f"{QUERY['spec']['slo']['latency_s']} s asked for, {predicted.value:.4f} s predicted "
        f"[{predicted.low:.4f}, {predicted.high:.4f}], {np.mean(latencies):.4f} s observed "
        f"(p50 {np.quantile(latencies, 0.5):.4f} s, p95 {np.quantile(latencies, 0.95):.4f} s)"
    )


def main() -> int:
    """Run it all; give the exit code."""
    start = time.monotonic()
    # One line with all packages goes before what each part would say of its own.
    packages = debian.lacking(*debian.PACKAGES)
    lacking = [packages or real_nodes.missing() or images.missing(), programs.missing()]
    if any(lacking):
        print(*(f"error: {each}" for each in lacking if each), sep="\n", file=sys.stderr)
        return 1

    def tell(line: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {line}", flush=True)

    try:
        problems = _run(tell)
    except (programs.NotBuilt, images.NoImages, NotReady) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    tell("everything was stopped again")
    print("; ".join(problems) or "the objectives were met, as far as requests can tell")
    return 1 if problems else 0


def _run(tell: Told) -> Sequence[str]:
    programs.build_all(tell)
    with tempfile.TemporaryDirectory(prefix="circinus-demo-cluster-") as folder:
        tell("starting a control plane and a node for each of device, edge, cloud")
        with running(real=True) as cluster, ExitStack() as last:
            tell("building the images and installing the chart")
            with progress.told(lambda: "  building and installing", tell):
                calibrated = {"calibration": {"enabled": True}}
                watched = {"CIRCINUS_DRIFT_S": "5"}  # as it is by default
                release = last.enter_context(
                    installed(cluster, Path(folder), calibrated, **watched)
                )
            return _show(release, tell)


def _show(release: Release, tell: Told) -> Sequence[str]:
    """Serve the query and send requests; give what went wrong, in words."""
    tell(f"the service answers at {release.url}")
    with progress.told(lambda: "  waiting until it serves", tell):
        status = serving(release, tell)
    with release.client() as client:
        plan = client.plan(status["planId"])
        for operator, tier in plan.placement.items():
            tell(f"  {operator} runs on {tier}, {plan.allocation[operator]:g} of a machine")
        tell(f"sending {REQUESTS} requests, one after the other, whose answers must be right")
        with progress.told(lambda: "  sending", tell):
            latencies = latencies_of_right_answers(client, status["queryId"], plan)
        tell(compared(plan, latencies))
        tell(f"verifying the plan by {VERIFIED} others")
        with progress.told(lambda: "  verifying", tell):
            report = verified(
                client, status["queryId"], VERIFIED, SEED + 1, SystemClock(), lambda *_: None
            )
    Console(width=110).print(*comparison(report.served), sep="\n")
    return report.problems


if __name__ == "__main__":
    sys.exit(main())
