"""What a pod asks a node for: what the scheduler sets aside for it.

That is the most of what runs at once in its life: init containers run one after the other, those
that go on (sidecars) beside all that come later, and the pod's own overhead beside everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.resources import quantity

Amounts = defaultdict[str, Decimal]
"""Resource -> how much, in cores, bytes or pieces; what is not there is none."""


def amounts_of(given: Mapping[str, str] | None) -> Amounts:
    """Return quantities as numbers."""
    told = (given or {}).items()
    return defaultdict(Decimal, {name: quantity(str(value)) for name, value in told})


def requested(pod: Object) -> Amounts:
    """Return what a pod of this spec asks for; its place among the pods of the node comes last."""
    sidecars, starting = amounts_of({}), amounts_of({})
    for container in pod.get("initContainers") or []:
        own = _of_container(container)
        now = _sum((sidecars, own))
        if container.get("restartPolicy") == "Always":
            sidecars = now
        for name, amount in now.items():
            starting[name] = max(starting[name], amount)
    running = _sum((sidecars, *map(_of_container, pod.get("containers") or [])))
    total = _sum((running,))
    for name, amount in starting.items():
        total[name] = max(total[name], amount)
    # What is asked for the pod as a whole goes before what its containers ask for.
    total |= amounts_of((pod.get("resources") or {}).get("requests"))
    total = _sum((total, amounts_of(pod.get("overhead"))))
    total["pods"] = Decimal(1)
    return total


def _of_container(container: Object) -> Amounts:
    return amounts_of((container.get("resources") or {}).get("requests"))


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total = amounts_of({})
    for part in parts:
        for name, amount in part.items():
            total[name] += amount
    return total
