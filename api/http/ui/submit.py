"""Submitting a query from a page: a form with the fields of a query file, or a query file."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from circinus.api.control.service import Service
from circinus.api.http.errors import problem_of
from circinus.api.http.routes.service import ServiceOf
from circinus.api.http.ui.frame import Form, framed
from circinus.api.query_file import query_of
from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.query import LimitsRequest, QueryRequest
from circinus.api.schemas.service import PipelineView, pipeline_view
from circinus.api.store.datasets import StoredDataset
from circinus.api.use_cases.datasets import take_in
from circinus.api.use_cases.queries import submit as submitted
from circinus.deploy.methods import METHODS
from circinus.pipelines.errors import CircinusError, InvalidInput, Violation
from circinus.pipelines.io.strict import parse_document
from circinus.pipelines.model.query import OnFailure
from circinus.pipelines.model.slo import HoldsFor, LatencyStatistic
from circinus.pipelines.registry import listed

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
"""Sources of inputs: the pipeline makes them, they were uploaded, or they are typed in."""
FIELDS = frozenset({*NUMBERS, *TEXTS, LINES})
_ONLY = {"data.examples": EXAMPLES, "data.seed": EXAMPLES, "data.dataset": DATASET}
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def document_of(form: Mapping[str, str], **data: object) -> dict[str, object]:
    """Return a form's fields as a query file, with more on its data, without empty ones.

    A malformed number stays text; the check of the document reports it.
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


def key_of(page_key: str, text: str) -> str:
    """Return the idempotency key of what is sent from the page with a key.

    A second click is the same query; something else, sent from the same page, is another.
    """
    return f"page-{blake2b(f'{page_key} {text}'.encode(), digest_size=16).hexdigest()}"


def by_field(
    violations: Sequence[Violation], fields: Collection[str]
) -> dict[str, list[Violation]]:
    """Return the violations of each field that a page has."""
    by_name: dict[str, list[Violation]] = {}
    for violation in violations:
        if violation.field in fields:
            by_name.setdefault(violation.field, []).append(violation)
    return by_name


PATH = "/ui/submit"
YAML = "yaml"
"""The way in which a query file is pasted, and the field where."""
router = APIRouter(include_in_schema=False)
Choices = Sequence[tuple[str, str]]
"""Values and their words."""
_SEE_OTHER = 303
_AT_FIRST: Mapping[str, str] = {"source": EXAMPLES, "data.examples": "100"}
_CHOICES: Mapping[str, Choices] = {
    "source": [
        (EXAMPLES, "Examples of the pipeline"),
        (DATASET, "A data set that was handed over"),
        (LINES, "Data of your own"),
    ],
    "slo.latency_statistic": [
        (each.value, "mean" if each.quantile is None else f"{each.value[1:]}th percentile")
        for each in LatencyStatistic
    ],
    "slo.holds_for": [
        (HoldsFor.EXAMPLES.value, "these inputs"),
        (HoldsFor.FUTURE.value, "future inputs, with 95 % confidence"),
    ],
    "data.on_failure": [
        (OnFailure.SCORE_ZERO.value, "scores zero"),
        (OnFailure.DROP.value, "scores zero, and leaves once it failed in all"),
        (OnFailure.STOP.value, "ends planning"),
    ],
}
_EXAMPLE = """\
pipeline: {pipeline}
data: {{examples: 100}}
slo: {{accuracy: 0.8, latency_s: 0.5}}
"""


@router.get(PATH)
def blank(service: ServiceOf, way: Annotated[str, Query(max_length=10)] = "form") -> Response:
    """Return the page with empty fields; `way` is `form` or `yaml`."""
    return _form_page(service, {**_AT_FIRST, "way": way})


@router.post(PATH)
def submit(service: ServiceOf, form: Form) -> Response:
    """Submit the query and redirect to its page, or show the form with its violations."""
    try:
        request = _request(service, form)
        # As it is meant: not what else was typed, nor how numbers are written.
        text = json.dumps(request.document, sort_keys=True)
        record = submitted(service.parts, request, key_of(form.get("key", ""), text))
    except CircinusError as error:
        problem = ProblemDetails.model_validate_json(bytes(problem_of(error, PATH).body))
        return _form_page(service, form, problem)
    return RedirectResponse(f"/ui/queries/{quote(record.id)}", _SEE_OTHER)


def _request(service: Service, form: Mapping[str, str]) -> QueryRequest:
    """Return a form's query, with its data uploaded; InvalidInput by the fields."""
    if form.get("way") == YAML:
        return query_of(parse_document(form.get(YAML, "").encode(), field=YAML))
    if form.get("source") != LINES:
        return query_of(document_of(form))
    query_of(document_of(form, examples=1))  # nothing is stored for an invalid query
    parts = service.parts
    try:
        content = form.get("lines", "").encode()
        dataset, _ = take_in(parts.datasets, "jsonl", content, parts.settings, parts.clock)
    except InvalidInput as error:
        violations = [
            Violation(LINES, f"{each.field} {each.rule}", each.value) for each in error.violations
        ]
        raise InvalidInput(violations) from error
    return query_of(document_of(form, dataset=dataset.id))


def _form_page(
    service: Service, form: Mapping[str, str], problem: ProblemDetails | None = None
) -> Response:
    catalogue = service.parts.catalogue
    pipelines = [pipeline_view(each) for each in listed(catalogue.names, catalogue.pipeline)]
    here = [each for each in pipelines if each.available]
    way = YAML if form.get("way") == YAML else "form"
    context = {
        "form": form,
        "way": way,
        "key": form.get("key") or secrets.token_hex(8),
        "problem": problem,
        "violations": by_field(
            problem.errors if problem else (), {YAML} if way == YAML else FIELDS
        ),
        "elsewhere": [each for each in pipelines if not each.available],
        "example": _EXAMPLE.format(pipeline=here[0].name if here else "NAME"),
        "limits": LimitsRequest(),
        "examples_limit": service.parts.settings.examples_limit,
        "choices": {**_CHOICES, **_choices(service, here)},
    }
    response = framed("submit.html", service, context, section="Submit", events="")
    response.status_code = problem.status if problem else 200
    return response


def _choices(service: Service, pipelines: Sequence[PipelineView]) -> dict[str, Choices]:
    datasets: Sequence[StoredDataset] = ()
    with suppress(CircinusError):  # the page has the typed text whatever else fails
        datasets = service.parts.datasets.all()
    method = service.parts.settings.chosen_method.name
    return {
        "pipeline": [(each.name, _words(each)) for each in pipelines],
        "data.dataset": [
            ("", "choose one" if datasets else "none was handed over yet"),
            *((each.id, f"{each.inputs} inputs ({each.kind}, {each.id})") for each in datasets),
        ],
        "planning.method": [("", f"the service's: {method}"), *((name, name) for name in METHODS)],
    }


def _words(pipeline: PipelineView) -> str:
    operators = len(pipeline.operators)
    return (
        f"{pipeline.name} ({operators} operator{'' if operators == 1 else 's'}, "
        f"{pipeline.configurations:,} configurations)"
    )
