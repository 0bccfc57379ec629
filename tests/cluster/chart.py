"""What helm makes of the chart, without a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import programs
from tests.cluster.requirements import not_here

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart"
VERSION = "1.36.3"
RELEASE, NAMESPACE = "c", "ns"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return how helm ended; the test is left out where there is none."""
    try:
        program = programs.find(programs.HELM)
    except programs.NotBuilt as error:
        not_here(str(error))
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def template(*flags: str) -> subprocess.CompletedProcess[str]:
    """Return how rendering a release of the chart ended."""
    version = ("--kube-version", VERSION)
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *version, *flags)


def rendered(*values: str) -> list[dict[str, Any]]:
    """Return the objects of a release of the chart, with values as of `--set`."""
    done = template(*(word for value in values for word in ("--set", value)))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the object of that kind and name."""
    return next(d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))


def definition() -> dict[str, Any]:
    """Return the definition of PipelineQuery that the chart brings."""
    (file,) = (CHART / "files" / "crds").iterdir()
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def jobs(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Jobs that a release has, without those that helm runs at its end."""
    found = [d for d in documents if d["kind"] == "Job"]
    return [d for d in found if "helm.sh/hook" not in (d["metadata"].get("annotations") or {})]
