"""All results of planning, as a value; and as a file that is read without the pipeline.

The file is JSON with a number for its form. What is written is what is known: explanations and
answers to "what if" follow from it after reading as before. The one rule: a file is believed no
further than it was checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import JsonValue

from circinus.api.bootstrap.planning import installed_version
from circinus.api.schemas.base import Input
from circinus.api.schemas.progress import TrialView
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.violations import checked, validated
from circinus.api.store.interrupted import Measurement, MeasurementDocument
from circinus.api.store.records import from_document, to_document
from circinus.api.use_cases.knowledge import Knowledge
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import Query
from circinus.planner.search.result import PlanningResult
from circinus.profiler.drawing import Drawing

FORM = 1
"""Of saved files: another number is another form."""
_LARGEST_BYTES = 2**30
_FIELD = "file"


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedFindings:
    """A query and the results of its planning."""

    request: QueryRequest  # data in memory stands as the number of examples
    query: Query
    infrastructure: Infrastructure
    graph: PipelineGraph
    drawing: Drawing  # the order of the inputs
    result: PlanningResult
    trials: tuple[TrialView, ...]  # the newest of each configuration, in the order of measuring
    measured: tuple[Measurement, ...]
    interrupted: bool  # whether more would have been measured

    @cached_property
    def knowledge(self) -> Knowledge:
        """What follows from the measurements."""
        plans, drew = self.result.plans, self.result.seen_to_draw
        return Knowledge.made(self.graph, self.query, self.drawing, self.measured, plans, drew)


class _Order(Input):
    order: list[int]
    groups: list[int] | None


class _Saved(Input):
    """A file: what others check better is only a mapping here."""

    circinus_plan: int
    version: str
    pipeline: dict[str, JsonValue]
    request: dict[str, JsonValue]
    query: dict[str, JsonValue]
    infrastructure: dict[str, JsonValue]
    result: dict[str, JsonValue]
    interrupted: bool
    inputs: _Order
    trials: list[dict[str, JsonValue]]
    measurements: list[MeasurementDocument]


def text_of(findings: PlannedFindings) -> str:
    """Return the content of a file of findings."""
    drawing = findings.drawing
    groups = None if drawing.groups is None else drawing.groups.tolist()
    pipeline = to_document(findings.graph)
    document = {
        "circinus_plan": FORM,
        "version": installed_version("circinus"),
        "pipeline": pipeline,
        "request": findings.request.document,
        "query": to_document(findings.query),
        "infrastructure": infrastructure_to_dict(findings.infrastructure),
        "result": to_document(findings.result),
        "interrupted": findings.interrupted,
        "inputs": {"order": drawing.order.tolist(), "groups": groups},
        "trials": [trial.model_dump(mode="json") for trial in findings.trials],
        "measurements": [MeasurementDocument.of(*each).model_dump() for each in findings.measured],
    }
    return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def read_findings(path: Path) -> PlannedFindings:
    """Return the findings of a file; InvalidInput if it is none, or its parts do not fit."""
    content = read_file(path, _FIELD, _LARGEST_BYTES)
    _require_form(content)
    saved = validated(_Saved.model_validate_json, content, _Saved)
    graph = from_document(PipelineGraph, saved.pipeline)
    query = from_document(Query, saved.query)
    same, rule = query.pipeline == graph.name, f"must be {graph.name}"
    checks.require(same, "query.pipeline", rule, query.pipeline)
    result, drawing = from_document(PlanningResult, saved.result), _drawing(saved.inputs)
    tiers, space = infrastructure_from_dict(saved.infrastructure), ConfigurationSpace(graph)
    _require_planned(result.plans, space, tiers)
    return PlannedFindings(
        request=checked(QueryRequest, saved.request),
        query=query,
        infrastructure=tiers,
        graph=graph,
        drawing=drawing,
        result=result,
        trials=tuple(checked(TrialView, trial) for trial in saved.trials),
        measured=tuple(_measured(saved.measurements, space, len(drawing.order))),
        interrupted=saved.interrupted,
    )


def _require_form(content: bytes) -> None:
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput.of(_FIELD, f"must be JSON ({error})", content[:40]) from error
    form = document.get("circinus_plan") if isinstance(document, dict) else None
    rule = f"must be a plan that was saved, of form {FORM}"
    checks.require(form == FORM, f"{_FIELD}.circinus_plan", rule, form)


def _drawing(inputs: _Order) -> Drawing:
    order, groups = inputs.order, inputs.groups
    rule = "must be every index once, from 0"
    checks.require(sorted(order) == list(range(len(order))) != [], "inputs.order", rule, order)
    rule = f"must be {len(order)} numbers, or null"
    checks.require(groups is None or len(groups) == len(order), "inputs.groups", rule, groups)
    return Drawing(
        order=np.array(order, dtype=np.int64),
        groups=None if groups is None else np.array(groups, dtype=np.int64),
    )


def _measured(
    documents: Sequence[MeasurementDocument], space: ConfigurationSpace, inputs: int
) -> Iterator[Measurement]:
    """Yield what was measured; InvalidInput if it is of something else than the rest."""
    operators = len(space.graph.operators)
    for i, document in enumerate(documents):
        configuration, measured = document.measurement
        rule = f"must be of {operators} operators and one of {inputs} inputs"
        fits = len(measured.operator_s) == operators and measured.input < inputs
        sizes = (len(measured.operator_s), measured.input)
        checks.require(fits, f"measurements[{i}]", rule, sizes)
        yield space.parse(configuration.as_dict()), measured


def _require_planned(
    plans: Sequence[Plan], space: ConfigurationSpace, tiers: Infrastructure
) -> None:
    """Raise InvalidInput if a plan is of another pipeline or infrastructure."""
    for plan in plans:
        space.parse(plan.configuration.as_dict())
        for tier in plan.deployment.tiers:
            tiers.tier(tier)
