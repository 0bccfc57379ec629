"""Pods that may do as little as runs, and a user's own part of those of workers.

A user's PodTemplateSpec is merged as `kubectl patch --type strategic` merges. What the plan or
Circinus decides is refused and never overwritten, so a template cannot change what the schedule
granted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kubernetes.client import V1PodTemplateSpec
from pydantic import ValidationError

from circinus.deploy.kubernetes.api import Object
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.strict import LARGEST_FILE_BYTES, parse_document

TLS_FOLDER = Path("/etc/circinus-tls")
"""Where a pod finds its certificate, key and authority."""
SCRATCH, ENVIRONMENT = Path("/tmp"), Path("/opt/environment")
"""What a container may write to, and where it finds the packages of its node."""
_USER = 10001
_SCRATCH_SIZE = "1Gi"  # beyond it the node evicts the pod instead of filling its disk


def locked_down(
    container: Object,
    *,
    environment: str | None,
    tls_secret: str | None = None,
    more: Mapping[str, object],
) -> Object:
    """Return the pod of one container, with `more` fields. Its own files are read-only.

    `environment` is a folder of the node with the packages; None: the image has them. Without a
    `tls_secret` it has no certificates.
    """
    mounts: list[Object] = [{"name": "scratch", "mountPath": str(SCRATCH)}]
    volumes: list[Object] = [{"name": "scratch", "emptyDir": {"sizeLimit": _SCRATCH_SIZE}}]
    if tls_secret is not None:
        mounts.insert(0, {"name": "tls", "mountPath": str(TLS_FOLDER), "readOnly": True})
        # Not root, so the group of the pod has to be able to read the key.
        secret = {"secretName": tls_secret, "defaultMode": 0o440}
        volumes.insert(0, {"name": "tls", "secret": secret})
    if environment is not None:
        mounts.append({"name": "environment", "mountPath": str(ENVIRONMENT), "readOnly": True})
        path = {"path": environment, "type": "Directory"}
        volumes.append({"name": "environment", "hostPath": path})
    rights = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            **({} if tls_secret is None else {"fsGroup": _USER}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **more,
        "containers": [{**container, "securityContext": rights, "volumeMounts": mounts}],
        "volumes": volumes,
    }


MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "evictionResponders": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""List of a pod -> what names its items: the API's `x-kubernetes-patch-merge-key`."""
RETAINED = ("resourceClaims", "volumes")
"""Lists whose items keep no key that is not in the patch: a volume has one source."""

_FIELD = "podTemplate"
_WORKER = ("spec", "containers", "worker")
_SELECTOR = "by it workers are found"
_PLAN = "the plan and its schedule decide it"
_SETTING = "a setting of its own decides it"
_PROGRAM = "it is the worker's program"
_OWNED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("metadata", "labels", "circinus.io/*"), _SELECTOR),
    (("metadata", "labels", "app.kubernetes.io/*"), _SELECTOR),
    (("metadata", "annotations", "circinus.io/*"), _SELECTOR),
    (("spec", "nodeSelector", "circinus.io/*"), _PLAN),
    (("spec", "nodeName"), _PLAN),
    (("spec", "restartPolicy"), "a Deployment allows but one"),
    (("spec", "volumes", "tls"), _SETTING),
    (("spec", "volumes", "environment"), _SETTING),
    ((*_WORKER, "image"), _SETTING),
    ((*_WORKER, "imagePullPolicy"), _SETTING),
    ((*_WORKER, "command"), _PROGRAM),
    ((*_WORKER, "args"), _PROGRAM),
    ((*_WORKER, "workingDir"), _PROGRAM),
    ((*_WORKER, "ports"), _PROGRAM),
    ((*_WORKER, "*Probe"), _PROGRAM),
    ((*_WORKER, "resources", "*", "cpu"), _PLAN),
    ((*_WORKER, "resources", "*", "nvidia.com/*"), _PLAN),
    ((*_WORKER, "resources", "*", "*/gpu*"), _PLAN),
    ((*_WORKER, "env", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), _PLAN),
    ((*_WORKER, "env", "NVIDIA_VISIBLE_DEVICES"), _PLAN),
    *(
        ((*_WORKER, "volumeMounts", str(path)), _PROGRAM)
        for path in (TLS_FOLDER, SCRATCH, ENVIRONMENT)
    ),
)
"""What a template must not set, and why."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What a user adds to every pod of workers."""

    document: Mapping[str, Any] = field(default_factory=dict)  # a PodTemplateSpec; may be empty

    def __post_init__(self) -> None:
        violations = [*_malformed(self.document)] or [*_not_theirs(self.document)]
        if violations:
            raise InvalidInput(violations)

    @property
    def tolerations(self) -> tuple[Object, ...]:
        """The taints that its pods tolerate, as `spec.tolerations` has them."""
        return tuple((self.document.get("spec") or {}).get("tolerations") or ())

    def merged_into(self, template: Object) -> Object:
        """Return a rendered template with what this adds; both stay as they were."""
        return _merged(template, self.document)


def read_pod_template(source: str) -> PodTemplate:
    """Return the template of a YAML file, or the one that a text which begins with `{` is.

    Empty: that adds nothing. InvalidInput with every field that is malformed, or not the user's.
    """
    if not source:
        return PodTemplate()
    if source.lstrip().startswith("{"):
        return PodTemplate(parse_document(source.encode(), field=_FIELD))
    return PodTemplate(
        parse_document(read_file(Path(source), _FIELD, LARGEST_FILE_BYTES), field=_FIELD)
    )


def _malformed(document: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield what is no PodTemplateSpec by the models of the official client."""
    spec = document.get("spec") or {}
    # A part needs no containers; theirs do.
    whole = (
        {**document, "spec": {"containers": [], **spec}} if isinstance(spec, dict) else document
    )
    try:
        V1PodTemplateSpec.model_validate(whole)
    except ValidationError as error:
        for each in error.errors():
            unknown = each["type"] == "extra_forbidden"
            rule = "must be a field of Kubernetes" if unknown else f"must be valid ({each['msg']})"
            path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in each["loc"])
            yield Violation.of(_FIELD + path, rule, each["input"])


def _not_theirs(document: Mapping[str, Any]) -> Iterator[Violation]:
    for path, value in _paths(document, ()):
        reason = next((why for owned, why in _OWNED if _is(path, value, owned)), "")
        if path[0] == "metadata" and path[1:2] not in ((), ("labels",), ("annotations",)):
            reason = "pods of a Deployment are named and kept by the cluster"
        if reason:
            yield Violation.of(".".join((_FIELD, *path)), f"must be left out: {reason}", value)


def _is(path: tuple[str, ...], value: object, owned: tuple[str, ...]) -> bool:
    """Whether it is what is owned; null above that would take it out."""
    above = value is None and len(path) < len(owned)
    return (above or len(path) == len(owned)) and all(map(fnmatchcase, path, owned))


def _paths(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield everything in a document with its path; items of lists by what names them."""
    if path:
        yield path, value
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _paths(below, (*path, str(name)))
    elif isinstance(value, list) and path[-1] in MERGE_KEYS:
        key = MERGE_KEYS[path[-1]]
        for item in value:
            yield from _paths(item, (*path, str(item.get(key))))


def _merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    merged = dict(base)
    for name, value in patch.items():
        there = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = _merged(there if isinstance(there, Mapping) else {}, value)
        elif isinstance(there, list) and name in MERGE_KEYS:
            merged[name] = _merged_lists(name, there, value)
        else:
            merged[name] = value
    return merged


def _merged_lists(name: str, base: list[Object], patch: list[Object]) -> list[Object]:
    key = MERGE_KEYS[name]
    items = {item[key]: item for item in base}
    for item in patch:
        merged = _merged(items.get(item[key], {}), item)
        retained = item.keys() if name in RETAINED else merged.keys()
        items[item[key]] = {field: merged[field] for field in merged if field in retained}
    return list(items.values())
