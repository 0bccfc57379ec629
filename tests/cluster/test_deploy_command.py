"""`circinus deploy` against a cluster, with its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.cli.commands import invoke
from tests.api.test_deploying import plan_document
from tests.cluster.cluster import Cluster
from tests.programs import need

pytestmark = pytest.mark.cluster


def test_a_plan_is_applied_changed_and_deleted(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    need("kubectl")

    def run(*words: str) -> tuple[int, Any]:
        options = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace, "--json"]
        result = invoke("deploy", *words, *options)
        return result.exit_code, json.loads(result.stdout)

    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps(plan_document()))
    plan, query = str(path), "p-1"

    assert run("diff", plan)[0] == 5
    assert run("status", query)[0] == 8
    assert run("apply", plan, "--dry-run")[1]["state"] == "preview"
    assert run("apply", plan, "--machine-cpu", "400", "--timeout", "3")[0] == 8
    code, applied = run("apply", plan)
    assert (code, applied["state"]) == (0, "ready")
    assert run("diff", plan)[0] == 0
    assert run("apply", plan, "--image", "other:2")[0] == 0
    assert run("diff", plan)[0] == 5
    assert run("status", query)[0] == 0
    assert run("delete", query)[0] == 0
    assert run("delete", query)[1] == {"deleted": []}
