"""Figures of a `PipelineQuery`'s requests in its status, and the condition made of them.

Figures move with every request, and each write costs the cluster. They are written anew when a
state changes or one of them has moved by a good part, so that a steady query costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from circinus.api.schemas.deployments import ObjectivesView, ObjectiveView

OBJECTIVES_MET: Final = "ObjectivesMet"
"""The condition's type."""
_MOVED = 1.25  # ratio of figures that is worth a write
_WORDS = ("message", "overload")
_NUMBER, _WHOLE, _TEXT = {"type": "number"}, {"type": "integer"}, {"type": "string"}

ObservedFacts = Mapping[str, Any]
"""`status.observed`."""


def observed_facts(
    before: ObservedFacts | None, view: ObjectivesView | None
) -> ObservedFacts | None:
    """Return the `observed` of a status, unchanged if it still holds; None: without figures.

    `before` is the one written last.
    """
    if view is None:
        return None
    facts = {
        "state": view.state,
        "message": view.sentence,
        "overload": view.overload or "",
        "ratePerS": _rounded(view.rate_per_s),
        "requests": view.requests,
        "turnedAway": view.turned_away,
        "failed": view.failed,
        "objectives": [_objective(each) for each in view.objectives],
    }
    return facts if before is None or _differs(before, facts) else before


def objectives_condition(facts: ObservedFacts | None) -> tuple[str, str, str]:
    """Return status, reason and message of the condition for `observed_facts`."""
    if facts is None:
        return "Unknown", "NotObserved", "no requests of the query are answered"
    message = str(facts["message"])
    missed = sorted(each["name"] for each in facts["objectives"] if each["state"] == "missed")
    if missed:
        words = "".join(part.capitalize() for part in missed[0].split("_"))
        return "False", f"{words}Missed", message
    if facts["overload"] and facts["turnedAway"]:
        text = f"{message}. {facts['turnedAway']} of {facts['requests']} requests were turned away"
        return "False", "Overloaded", text
    if facts["state"] == "met":
        return "True", "Overloaded" if facts["overload"] else "AllMet", message
    return "Unknown", "TooFewRequests", message


def observed_schema() -> dict[str, Any]:
    """Return the OpenAPI schema of `status.observed`."""
    objective = {
        "name": _TEXT,
        "state": {**_TEXT, "enum": ["met", "missed", "unsure"]},
        "value": {**_NUMBER, "description": "What was observed; left out: nothing."},
        "low": {**_NUMBER, "description": "Lower end of its 95 % interval."},
        "high": {**_NUMBER, "description": "Upper end of it."},
        "bound": {**_NUMBER, "description": "The required value."},
        "requests": {**_WHOLE, "description": "That it rests on."},
    }
    item = {"type": "object", "required": ["name", "state"], "properties": objective}
    return {
        "type": "object",
        "description": "Figures of recent requests, apart from the plan's predictions.",
        "properties": {
            "state": {**_TEXT, "enum": ["met", "missed", "unsure"]},
            "message": {**_TEXT, "description": "The same in words, with figures."},
            "overload": {**_TEXT, "description": "Why there is too much to do; may be empty."},
            "ratePerS": {**_NUMBER, "description": "Arriving requests per second."},
            "requests": {**_WHOLE, "description": "Of the last minute."},
            "turnedAway": {**_WHOLE, "description": "Of them, refused."},
            "failed": {**_WHOLE, "description": "Of them, those that got another error."},
            "objectives": {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
    }


def _objective(each: ObjectiveView) -> dict[str, object]:
    values = {"value": each.value, "low": each.low, "high": each.high}
    figures = {name: _rounded(value) for name, value in values.items() if value is not None}
    return {
        "name": each.name,
        "state": each.state,
        **figures,
        "bound": each.bound,
        "requests": each.requests,
    }


def _differs(before: object, now: object) -> bool:
    """Return whether anything but words differs: numbers may move a little."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        if before.keys() != now.keys() or bool(before.get("overload")) != bool(
            now.get("overload")
        ):
            return True
        return any(_differs(before[k], now[k]) for k in now if k not in _WORDS)
    if isinstance(before, list) and isinstance(now, list):
        pairs = zip(before, now, strict=False)
        return len(before) != len(now) or any(_differs(a, b) for a, b in pairs)
    if isinstance(before, int | float) and isinstance(now, int | float):
        least, most = sorted((before, now))
        return most > _MOVED * least
    return before != now


def _rounded(value: float) -> float:
    """Return a figure with three digits, its precision."""
    return float(f"{value:.3g}")
