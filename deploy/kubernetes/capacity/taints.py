"""Which taints of nodes keep pods away, by Kubernetes' own rule of what is tolerated.

One rule for whoever counts machines and whoever looks for room: a node that our pods may not be
on, or may be on for a while only, is none of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from circinus.deploy.kubernetes.api import Object

_DRIVES_OUT = "NoExecute"
_KEEPS_AWAY = ("NoSchedule", _DRIVES_OUT)
_EQUAL, _EXISTS = "Equal", "Exists"


def tolerates(taints: Iterable[Object], tolerations: Iterable[Object]) -> bool:
    """Return whether pods with these tolerations may run and stay on a node with these taints."""
    return not untolerated(taints, tolerations)


def untolerated(taints: Iterable[Object], tolerations: Iterable[Object]) -> tuple[str, ...]:
    """Return the taints that keep such pods away or drive them out, as kubectl writes them."""
    known = list(tolerations)
    return tuple(
        told_of(taint)
        for taint in taints
        if taint.get("effect") in _KEEPS_AWAY and not _is_tolerated(taint, known)
    )


def told_of(taint: Object) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`, or `key:effect`."""
    value = taint.get("value")
    return f"{taint.get('key')}{f'={value}' if value else ''}:{taint.get('effect')}"


def _is_tolerated(taint: Object, tolerations: list[Object]) -> bool:
    # Of several that match, Kubernetes goes by the first.
    first = next((each for each in tolerations if _matches(each, taint)), None)
    if first is None:
        return False
    return taint["effect"] != _DRIVES_OUT or first.get("tolerationSeconds") is None


def _matches(toleration: Object, taint: Object) -> bool:
    for field in ("effect", "key"):
        if (toleration.get(field) or taint.get(field)) != taint.get(field):
            return False
    if (toleration.get("operator") or _EQUAL) == _EXISTS:
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")
