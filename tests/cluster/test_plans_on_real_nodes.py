"""A rendered plan on real nodes: its pods start, locked down as they are, and answer right."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from circinus.deploy.kubernetes.api import collection_of
from circinus.deploy.kubernetes.launcher import ready_addresses
from circinus.deploy.kubernetes.manifests import Rendered, ScheduledPlan, render
from circinus.deploy.kubernetes.names import TIER
from circinus.deploy.kubernetes.pods import PORT_NAME, RenderSettings
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.transport import SERVER_NAME, TlsFiles, files_in
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.registry import load_pipeline
from circinus.scheduler.problem import Slice
from tests.cluster import images
from tests.cluster.api import Api
from tests.cluster.cluster import Cluster
from tests.cluster.requirements import not_here
from tests.cluster.rollouts import apply, delete
from tests.deploy.scheduled_plans import INFRASTRUCTURE, plan_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
TIERS = ("device", "cloud")
SECRET = "circinus-workers-tls"


@pytest.fixture(scope="module")
def environment(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The images in the nodes' stores, and the folder of packages that they mount."""
    lacking = images.missing()
    if lacking:
        not_here(lacking)
    folder = tmp_path_factory.mktemp("packages")
    try:
        images.load(real_cluster.nodes, folder)
    except images.NoImages as error:
        not_here(str(error))
    with images.environment(folder / "environment") as found:
        yield found


def certificates(folder: Path) -> TlsFiles:
    """A certificate of workers and of who calls them, which is its own authority."""
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-keyout", "tls.key", "-out", "tls.crt", "-subj", f"/CN={SERVER_NAME}"]
    name = ["-addext", f"subjectAltName=DNS:{SERVER_NAME}"]
    subprocess.run([*make.split(), *files, *name], cwd=folder, check=True, capture_output=True)
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())
    return files_in(folder)


def make_secret(api: Api, namespace: str, folder: Path) -> None:
    names = ("tls.crt", "tls.key", "ca.crt")
    data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in names}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.create(path, {"metadata": {"name": SECRET}, "data": data})


def scheduled(pipeline: Pipeline) -> ScheduledPlan:
    """All operators on the device but the last, which is in the cloud."""
    graph = pipeline.graph
    device, cloud = TIERS
    placement = [*([device] * (len(graph.operators) - 1)), cloud]
    plan = plan_of(graph, placement, dict.fromkeys(TIERS, 0.5), {})
    return ScheduledPlan(
        query_id="reading",
        pipeline_reference="digits",
        plan=plan,
        graph=graph,
        infrastructure=INFRASTRUCTURE,
        slices=tuple(Slice(tier, 0, share) for tier, share in plan.demand),
    )


def addresses(api: Api, namespace: str, rendered: Rendered) -> Mapping[str, str]:
    """Tier -> the address that its Service leads to."""
    slices = api.items(collection_of("EndpointSlice", namespace))
    found = ready_addresses(slices, PORT_NAME)
    services = [each for each in rendered.objects if each["kind"] == "Service"]
    return {
        each["metadata"]["labels"][TIER]: next(iter(found[each["metadata"]["name"]]))[1]
        for each in services
    }


def test_a_plan_that_is_applied_runs_and_answers_what_the_pipeline_answers(
    real_cluster: Cluster, environment: Path, tmp_path: Path
) -> None:
    pipeline = load_pipeline("digits")
    tls = certificates(tmp_path)
    chosen = scheduled(pipeline)
    with real_cluster.namespace() as namespace:
        make_secret(real_cluster.api, namespace, tmp_path)
        settings = RenderSettings(
            namespace=namespace,
            image=images.WORKER,
            pull_policy="Never",
            machine=MachineShape(cpu="1", memory="1Gi"),
            environment=str(environment),
        )
        plan = render(chosen, settings)
        apply(real_cluster, plan, timeout_s=400.0)

        where = addresses(real_cluster.api, namespace, plan)
        assert set(where) == set(TIERS)
        assert pipeline.examples is not None
        configuration = chosen.plan.configuration
        for example in pipeline.examples(3, 5).examples:
            answer = asyncio.run(answered(where, tls, chosen, example.input))
            assert answer == pipeline.run(example.input, configuration)
        delete(real_cluster, plan)


async def answered(
    where: Mapping[str, str], tls: TlsFiles, chosen: ScheduledPlan, given: Payload
) -> Payload:
    """What the last operator gives, each tier having run its own."""
    known = {INPUT: encode(given)}
    placement = chosen.plan.deployment.placement
    for tier in TIERS:
        mine = [o.name for o in chosen.graph.operators if placement[o.name] == tier]
        client = WorkerClient(where[tier], tls)
        try:
            reply = await client.run(mine, known, mine, timeout_s=60.0)
        finally:
            await client.close()
        known |= reply.outputs
    return decode(known[chosen.graph.operators[-1].name])
