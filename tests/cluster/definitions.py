"""Kinds of others that we have objects of: their definitions, from pinned Go modules."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.requirements import not_here

_LONGEST_S = 300.0
_GATEWAY = "sigs.k8s.io/gateway-api@v1.3.0"
_CERT_MANAGER = "github.com/cert-manager/cert-manager@v1.18.2"
_KEDA = "github.com/kedacore/keda/v2@v2.15.1"
_KARPENTER = "sigs.k8s.io/karpenter@v1.0.8"
_PROMETHEUS = "github.com/prometheus-operator/prometheus-operator@v0.85.0"


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a kind is defined."""

    module: str  # with its version
    file: str  # of the module


DEFINITIONS = {
    "HTTPRoute": Definition(
        _GATEWAY, "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"
    ),
    "Certificate": Definition(_CERT_MANAGER, "deploy/crds/crd-certificates.yaml"),
    "Issuer": Definition(_CERT_MANAGER, "deploy/crds/crd-issuers.yaml"),
    "ServiceMonitor": Definition(
        _PROMETHEUS,
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "NodePool": Definition(_KARPENTER, "pkg/apis/crds/karpenter.sh_nodepools.yaml"),
}
"""Of the chart."""
OF_ROUTES = {
    "HTTPRoute": DEFINITIONS["HTTPRoute"],
    "ScaledObject": Definition(_KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "NodePool": DEFINITIONS["NodePool"],
    "NodeClaim": Definition(_KARPENTER, "pkg/apis/crds/karpenter.sh_nodeclaims.yaml"),
}
"""Of routes over deployment units."""
EVERY = DEFINITIONS | OF_ROUTES


@cache
def definition_of(kind: str) -> dict[str, Any]:
    """Return the definition of a kind; without Go or a network the test is left out."""
    where = EVERY[kind]
    text = (_folder(where.module) / where.file).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    found["metadata"].pop("labels", None)  # templates, some of them
    return found


@cache
def _folder(module: str) -> Path:
    if shutil.which("go") is None:
        not_here(f"there is no Go to fetch {module} with")
    command = ["go", "mod", "download", "-json", module]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        not_here(f"{module} was not fetched within {_LONGEST_S:g} s")
    if done.returncode:
        not_here(f"{module} cannot be fetched: {done.stdout} {done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])
