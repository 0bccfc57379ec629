"""Why pods are not ready, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deploy.kubernetes.api import Object


def why_not_ready(pods: Iterable[Object]) -> str:
    """Give a line for every pod that is not ready."""
    found = list(pods)
    lines = [line for pod in found for line in _lines(pod)]
    if not found:
        return "there is no pod: the cluster made none (a quota, or an admission rule?)"
    return "\n".join(lines) or "its pods are ready, but do not answer"


def _lines(pod: Object) -> Iterator[str]:
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"pod {name} finds no node: {condition.get('message', '')}"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason") != "ContainerCreating":
            told = f"pod {name} waits: {waiting.get('reason')} {waiting.get('message', '')}"
            yield told.rstrip()
        if ended:
            yield f"pod {name} ended with code {ended.get('exitCode')}: {ended.get('reason', '')}"
        if state.get("running") and not container.get("ready"):
            yield f"pod {name} runs, but is not ready yet"
