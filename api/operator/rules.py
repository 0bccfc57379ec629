"""What the API server checks of a spec beyond types and bounds; each rule says what to do.

Choices between fields and patterns are said as rules with words of our own: of a choice the server
would name but the first way (`latency_s: Required value`), of a pattern only the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NAME = "[A-Za-z][A-Za-z0-9_.-]{0,62}"
_NAMED = "a letter, then at most 62 letters, digits, '_', '.', '-'"
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRule:
    """A rule of the API server for a part of the spec."""

    path: tuple[str, ...]  # of the part; `*`: each value of a map
    rule: str  # in CEL; `self` is the part
    message: str  # what to do where it does not hold


RULES = (
    SpecRule(
        path=("pipeline",),
        rule=f"self.matches('^{_NAME}$')",
        message=f"pipeline must be the name of a registered pipeline: {_NAMED}",
    ),
    SpecRule(
        path=("pipeline",),
        rule="self == oldSelf",
        message="pipeline must stay as it is: make another PipelineQuery",
    ),
    SpecRule(
        path=("tenant",),
        rule=f"self.matches('^({_NAME})?$')",
        message=f"tenant must be a name: {_NAMED}; or be left out",
    ),
    SpecRule(
        path=("data",),
        rule="has(self.examples) != has(self.dataset)",
        message=(
            "data must have either examples (how many of the pipeline's own) or dataset (the id "
            "of one that was handed over to the service)"
        ),
    ),
    SpecRule(
        path=("data",),
        rule="has(self.examples) || !has(self.seed) || self.seed == 0",
        message="data.seed must be left out without data.examples: it chooses among examples",
    ),
    SpecRule(
        path=("data", "dataset"),
        rule="self.matches('^d-[0-9a-f]{32}$')",
        message=(
            "dataset must be the id of a data set, `d-` and 32 digits: `circinus datasets list` "
            "shows them, `circinus datasets add PATH` hands one over"
        ),
    ),
    SpecRule(
        path=("slo",),
        rule="has(self.latency_s) || has(self.throughput_per_s)",
        message=(
            "slo must have latency_s (most seconds per request) or throughput_per_s (least "
            "requests per second, for batch work), or both"
        ),
    ),
    SpecRule(
        path=(),
        rule="!has(self.request_rate_per_s) || !has(self.slo.throughput_per_s)",
        message=(
            "request_rate_per_s must be left out with slo.throughput_per_s: batch work has "
            "always some to do"
        ),
    ),
    SpecRule(
        path=("restrictions", "tiers", "*"),
        rule="has(self.only) || has(self.never)",
        message=(
            "say `only` (one of these tiers) or `never` (none of these), or leave the operator out"
        ),
    ),
)
_UNSEEN = ("restrictions", "knobs", "*", "*")
"""Whose fields have values of any type, which rules cannot see: the service says what to do."""


def add_rules(spec: dict[str, Any]) -> None:
    """Put the rules into the schema of a spec, in place of the choices and patterns there."""
    spec["properties"]["tenant"]["maxLength"] = _LONGEST_NAME  # what a match costs is known
    spec["properties"]["data"]["properties"]["dataset"]["maxLength"] = _LONGEST_NAME
    del _part(spec, _UNSEEN)["anyOf"]
    for each in RULES:
        part = _part(spec, each.path)
        for replaced in ("anyOf", "pattern"):
            part.pop(replaced, None)
        rules = part.setdefault("x-kubernetes-validations", [])
        rules.append({"rule": each.rule, "message": each.message})


def _part(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        schema = schema["additionalProperties"] if name == "*" else schema["properties"][name]
    return schema
