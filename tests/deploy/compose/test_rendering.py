"""Compose files: valid by the specification's schema, and what was planned is what they run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from circinus.deploy.compose.rendering import (
    FRONT,
    MACHINE_TYPE,
    PLAN_FILE,
    PORT,
    SOCKETS,
    TIER,
    ComposeSettings,
    addresses,
    as_yaml,
    render,
)
from circinus.deploy.kubernetes.manifests import ScheduledPlan
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.runtime.instances import instances_of
from circinus.deploy.workers.options import parse
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import Scaling
from circinus.pipelines.model.tiers import MachineType, Tier
from tests.deploy.read_back import as_planned, read_back
from tests.deploy.scheduled_plans import scheduled_chain, scheduled_plans

DOLLARS = re.compile(r"\$\$|\$\{[A-Z_]+(:[-?][^}]*)?\}")


@cache
def schema() -> jsonschema.Draft7Validator:
    text = (Path(__file__).parent / "compose-spec.json").read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text))


def rendered(scheduled: ScheduledPlan, **how: Any) -> dict[str, Any]:  # noqa: ANN401 - any
    """The file as whoever reads its text gets it; it is a valid one."""
    specs = instances_of(
        scheduled.query_id, scheduled, scheduled.graph, scheduled.infrastructure
    ).values()
    plan_file = json.dumps({"plan": scheduled.plan.id, "sign": "$HOME ${HOME}"})
    found: dict[str, Any] = yaml.safe_load(
        as_yaml(render(list(specs), plan_file, ComposeSettings(**how)))
    )
    schema().validate(found)
    return found


def workers(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in document["services"].items() if name != FRONT}


def test_the_schema_refuses_what_it_does_not_know() -> None:
    document = rendered(scheduled_chain("q", ["edge"]))
    document["services"][FRONT]["cpu"] = 1
    with pytest.raises(jsonschema.ValidationError, match="cpu"):
        schema().validate(document)


def test_an_image_is_needed() -> None:
    with pytest.raises(InvalidInput, match="image must not be empty"):
        ComposeSettings(image="")


def test_workers_have_no_ports_and_requests_come_to_loopback_with_a_token() -> None:
    document = rendered(scheduled_chain("q", ["device", "edge"]))
    front = document["services"][FRONT]
    assert front["ports"] == [f"127.0.0.1:${{CIRCINUS_PORT:-{PORT}}}:{PORT}"]
    assert front["environment"]["CIRCINUS_TOKEN"].startswith("${CIRCINUS_TOKEN:?")
    for name, worker in workers(document).items():
        options = parse([word.replace("$$", "$") for word in worker["command"]])
        assert options.bind.startswith(f"unix:{SOCKETS}/"), name
        assert options.tls is None
        assert "ports" not in worker
    made = document["volumes"]["sockets"]["driver_opts"]
    assert made == {"type": "tmpfs", "device": "tmpfs", "o": "uid=10001,gid=10001,mode=0700"}


def test_services_may_do_nothing_but_run() -> None:
    for service in rendered(scheduled_chain("q", ["edge"]))["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == "10001:10001"
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][:4] == ["CMD", "python3", "-S", "-c"]


def test_a_share_is_that_of_the_machine() -> None:
    machine = MachineShape(cpu="4", memory="8Gi")
    (worker,) = workers(
        rendered(scheduled_chain("q", ["edge"], shares={"edge": 0.3}), machine=machine)
    ).values()
    # 0.3 * 4 = 1.2 cores; 0.3 * 8192 Mi = 2457.6 Mi, rounded down.
    told = (worker["cpus"], worker["mem_reservation"], worker["mem_limit"])
    assert told == (1.2, "2457m", "8192m")


def test_a_share_of_a_batched_operator_is_no_limit_on_the_cpu() -> None:
    scheduled = scheduled_chain("q", ["edge"], shares={"edge": 0.5})
    (operator,) = scheduled.graph.operators
    batched = replace(operator, scaling=Scaling.BATCHED, batch_latency={1: 1.0, 2: 1.5})
    document = rendered(replace(scheduled, graph=replace(scheduled.graph, operators=(batched,))))
    (worker,) = workers(document).values()
    assert worker["cpus"] == 1.0
    assert parse(worker["command"]).pace.enforcement == "duty cycle"


def test_every_replica_is_a_service_with_a_socket_of_its_own() -> None:
    scheduled = scheduled_chain("q", ["edge"], shares={"edge": 0.3}, replicas={"edge": 3})
    found = workers(rendered(scheduled))
    assert list(found) == ["edge-0", "edge-1", "edge-2"]
    assert [parse(each["command"]).bind for each in found.values()] == addresses(3)


def test_labels_tell_tier_and_type() -> None:
    unlike = Tier(name="edge", types=(MachineType(name="a", machines=2), MachineType(name="b")))
    asked = scheduled_chain(
        "q", ["edge"], shares={"edge": 0.3}, replicas={"edge": 2}, machines={"edge": [0, 2]}
    )
    tiers = Infrastructure(name="unlike", tiers=(unlike,))
    typed = replace(asked, infrastructure=tiers, machine_types=("a", "b"))
    labels = [each["labels"] for each in workers(rendered(typed)).values()]
    assert [(each[TIER], each[MACHINE_TYPE]) for each in labels] == [("edge", "a"), ("edge", "b")]


def test_a_reference_to_a_module_may_be_imported_and_a_name_need_not() -> None:
    scheduled = scheduled_chain("q", ["edge"])
    for reference, told in (("digits", False), ("mine:pipeline", True)):
        named = replace(scheduled, pipeline_reference=reference)
        (worker,) = workers(rendered(named)).values()
        assert parse(worker["command"]).allow_import is told


def test_the_same_plan_is_rendered_the_same() -> None:
    first, again = (rendered(scheduled_chain("q", ["device", "edge"])) for _ in range(2))
    assert first == again


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scheduled_plans())
def test_any_file_is_valid_and_read_back_into_the_same_plan(scheduled: ScheduledPlan) -> None:
    document = rendered(scheduled)
    found = workers(document)
    arguments = [[w.replace("$$", "$") for w in each["command"]] for each in found.values()]

    assert read_back(scheduled.graph, [(each, 1) for each in arguments]) == as_planned(
        scheduled.plan, scheduled.graph
    )
    for (name, worker), words in zip(found.items(), arguments, strict=True):
        options = parse(words)
        assert worker["labels"][TIER] == options.tier
        assert name.startswith(f"{options.tier}-")
        assert worker["cpus"] == pytest.approx(options.pace.share, abs=1e-3)
    # Nothing is taken for a variable that is none, and the rest is as it was.
    texts = [w for each in document["services"].values() for w in each["command"]]
    content = document["configs"]["plan"]["content"]
    for text in (*texts, content):
        assert "$" not in DOLLARS.sub("", text)
    assert json.loads(content.replace("$$", "$"))["sign"] == "$HOME ${HOME}"
    front = document["services"][FRONT]
    assert (front["command"], front["depends_on"]) == ([PLAN_FILE], list(found))
