"""The form of a query: its fields are called as in query files, and so are their violations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

from circinus.pipelines.errors import Violation

NUMBERS = (
    "data.examples",
    "data.seed",
    "slo.accuracy",
    "slo.latency_s",
    "slo.cost_usd_per_hour",
    "slo.cost_usd_per_1000_requests",
    "slo.throughput_per_s",
    "request_rate_per_s",
    "weight",
    "priority",
    "duration_s",
    "limits.profiling_s",
    "limits.profiling_usd",
    "limits.response_s",
    "limits.configurations",
    "seed",
)
TEXTS = (
    "pipeline",
    "data.dataset",
    "data.on_failure",
    "slo.latency_statistic",
    "slo.holds_for",
    "tenant",
    "planning.method",
)
EXAMPLES, DATASET, LINES = "examples", "dataset", "lines"
"""Where inputs come from: the pipeline makes them, they were handed over, or they are typed in."""
FIELDS = frozenset({*NUMBERS, *TEXTS, LINES})
_ONLY = {"data.examples": EXAMPLES, "data.seed": EXAMPLES, "data.dataset": DATASET}
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def document_of(form: Mapping[str, str], **data: object) -> dict[str, object]:
    """Return what a form says as query files do, with more on its data; what is empty is left out.

    What should be a number and is none stays text, for whoever checks the document to say so.
    """
    document: dict[str, object] = {"data": data, "slo": {}}
    for name in (*NUMBERS, *TEXTS):
        text = form.get(name, "")
        if not text or _ONLY.get(name, form.get("source")) != form.get("source"):
            continue
        section, _, key = name.rpartition(".")
        place = document.setdefault(section, {}) if section else document
        if isinstance(place, dict):
            place[key] = _number(text) if name in NUMBERS else text
    if form.get("cold"):
        document["cold"] = True
    return document


def _number(text: str) -> object:
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def key_of(shown: str, text: str) -> str:
    """Return the idempotency key of what is sent from a page that was `shown` once.

    A second click is the same query; something else, sent from the same page, is another.
    """
    return f"page-{blake2b(f'{shown} {text}'.encode(), digest_size=16).hexdigest()}"


def by_field(
    violations: Sequence[Violation], fields: Collection[str]
) -> dict[str, list[Violation]]:
    """Return the violations of each field that a page has."""
    told: dict[str, list[Violation]] = {}
    for violation in violations:
        if violation.field in fields:
            told.setdefault(violation.field, []).append(violation)
    return told
