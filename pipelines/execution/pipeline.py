"""A pipeline that can run: the graph, its functions, its metric and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from threading import current_thread, main_thread
from typing import NamedTuple

from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed, words_of
from circinus.pipelines.execution.connections import Watch
from circinus.pipelines.execution.metrics import (
    SCORING,
    Judge,
    SetMetric,
    positionals,
    within_range,
)
from circinus.pipelines.execution.needs import Need, missing, require
from circinus.pipelines.execution.suggested import SuggestedEndpoint
from circinus.pipelines.execution.weights import ModelWeights
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray, Unplannable
from circinus.pipelines.user_code import copies_ended, settled

Score = Callable[[Payload, Payload], float] | Callable[[Payload, Payload, Payload], float]
"""`score(output, expected)`, or `score(output, expected, input)`, in [0, 1]; higher is better."""


def score_by(score: Callable[..., float], *values: Payload, declared: bool = False) -> float:
    """Return a metric's score; OperatorFailed if it raises or returns nothing in [0, 1].

    Unless it is one that has declared its calls, it calls no model that is paid for.
    """
    try:
        with copies_ended(), Watch(SCORING, declared=declared):
            figure = float(settled(score(*values)))
    except Unplannable as error:
        raise OperatorFailed(SCORING, str(error)) from error
    except Exception as error:  # the metric is the user's code: a border
        raise OperatorFailed(SCORING, words_of(error)) from error
    return within_range(figure)


class Checked(NamedTuple):
    """The result of checking a pipeline before it is planned."""

    remarks: tuple[str, ...] = ()  # remarks on it, for people
    draws: tuple[str, ...] = ()  # operators that answered the same input differently


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A DAG of operators with a metric that scores its output on an input."""

    name: str  # of the pipeline
    operators: tuple[Operator, ...]  # in any order; `graph` has them in topological order
    # the metric; a judge is one that may be wrong, a set metric one of all outputs together
    score: Score | Judge | SetMetric
    metric: str = "score"  # what the score means, in words
    unit: str = "1"  # unit of the score
    # few and cheap, to draw strata by; None: generic ones are, see `execution.features`
    features: Callable[[Payload], FloatArray] | None = None
    # `(count, seed)`: data of its own. Where it has a `one_by_one(count, seed)`, an iterator over
    # the same, who asks for one of them need not wait for all
    examples: Callable[[int, int], Dataset] | None = None
    prepare: Callable[[], None] | None = None  # makes once what they need, trained models say
    # `(inputs)`: what running it on them shows before it is planned; InvalidInput refuses it. None
    # for a pipeline that needs no check
    remarks: Callable[[Sequence[Payload]], Checked] | None = None
    # `(input)`: how large a request is, in any unit (seconds of audio, pages, tokens), finite and
    # `> 0`; larger ones take longer, and what each takes where is learnt. It runs in the process
    # that hands out requests, for each of them: microseconds. None: all requests are of one size
    request_size: Callable[[Payload], float] | None = None
    # how many examples it has, where it has a fixed set; None: it makes as many as asked for
    example_count: int | None = None
    suggested: tuple[SuggestedEndpoint, ...] = ()  # what it knows of the endpoints that it calls
    needs: tuple[Need, ...] = ()  # what they use beyond the base install; see `available`
    weights: tuple[ModelWeights, ...] = ()  # of models that they load; made ready before `prepare`

    def __post_init__(self) -> None:
        where = f"pipeline {self.name}.score"
        good = callable(self.score) or isinstance(self.score, Judge | SetMetric)
        checks.require(good, where, "must be callable", self.score)
        _ = self.graph

    @cached_property
    def graph(self) -> PipelineGraph:
        """The pipeline without its code; InvalidInput if the operators do not form a DAG."""
        specs = tuple(operator.spec for operator in self.operators)
        return PipelineGraph(name=self.name, metric=self.metric, unit=self.unit, operators=specs)

    @cached_property
    def by_name(self) -> Mapping[str, Operator]:
        """The operators by name, in topological order."""
        operators = {operator.name: operator for operator in self.operators}
        return {spec.name: operators[spec.name] for spec in self.graph.operators}

    def available(self) -> tuple[Need, ...]:
        """Return what is missing on this machine; nothing when the pipeline can run."""
        return missing(self._all_needs)

    def require_available(self, *, to_prepare: bool = False) -> None:
        """Raise InvalidInput if it cannot run here: with what is missing, how to install it.

        Weights may be missing `to_prepare` it.
        """
        require("pipeline", self.name, self.needs if to_prepare else self._all_needs)

    @property
    def _all_needs(self) -> tuple[Need, ...]:
        return (*self.needs, *(each.need for each in self.weights))

    def make_ready(self) -> None:
        """Make what it needs once, where that has to be; InvalidInput if it cannot be had."""
        for each in self.weights:
            each.prepare()
        if self.prepare is not None:
            with copies_ended():
                self.prepare()

    def run(self, input: Payload, configuration: Configuration) -> Payload:
        """Return the output for one input; OperatorFailed names the operator that raised."""
        outputs: dict[str, Payload] = {}
        for name in self.by_name:
            inputs = inputs_of(self.graph, name, input, outputs)
            outputs[name] = run_operator(self.by_name[name], inputs, configuration)
        return output_of(self.graph, outputs)

    @property
    def judge(self) -> Judge | None:
        """The judge that scores its outputs; None: a metric does, which is right."""
        return self.score if isinstance(self.score, Judge) else None

    @property
    def over_set(self) -> SetMetric | None:
        """The metric of all outputs together; None: each output has a score of its own."""
        return self.score if isinstance(self.score, SetMetric) else None

    def score_of(self, output: Payload, expected: Payload, input: Payload = None) -> float:
        """Return the score of an output; OperatorFailed if the metric raises or is not in [0, 1].

        InvalidInput if only all outputs together have one. The input is for judges, and metrics
        that take three arguments.
        """
        if isinstance(self.score, SetMetric):
            rule = "must score single outputs, not all together"
            raise InvalidInput.of(f"pipeline {self.name}.score", rule, self.score.name)
        judge, values = self.judge, (output, expected, input)[: self._positionals]
        declared = judge is not None and bool(judge.operator.spec.calls)
        return score_by(self.score, *values, declared=declared)

    @cached_property
    def _positionals(self) -> int:
        metric = self.score
        return 2 if isinstance(metric, SetMetric) else 3 if self.judge else positionals(metric)

    def size_of(self, input: Payload) -> float:
        """Return the size of a request; OperatorFailed if `request_size` raises or gives no size.

        InvalidInput that it raises is what it finds wrong with the input, as of a source operator.
        """
        if self.request_size is None:
            return 1.0
        try:
            with copies_ended():
                size = float(self.request_size(input))
        except InvalidInput as error:
            raise OperatorFailed("request_size", str(error), error.violations) from error
        except Exception as error:  # the size is the user's code: a border
            raise OperatorFailed("request_size", words_of(error)) from error
        if not 0 < size < inf:
            raise OperatorFailed("request_size", f"must give a finite size > 0, got {size}")
        return size


def scored_over_set(pipeline: Pipeline, metric: SetMetric | None, where: str) -> Pipeline:
    """Return a pipeline with a metric of all outputs together; None: as it is.

    InvalidInput about `where` if a judge scores it: people label single outputs.
    """
    if metric is None:
        return pipeline
    rule = f"must be left out: pipeline {pipeline.name} is scored by a judge, output by output"
    checks.require(pipeline.judge is None, where, rule, metric.name)
    return replace(pipeline, score=metric, metric=metric.name)


def run_operator(operator: Operator, inputs: Payload, configuration: Configuration) -> Payload:
    """Return the output of one operator; OperatorFailed if it raises.

    InvalidInput raised by a source operator is what it finds wrong with the pipeline's input.
    """
    try:
        with copies_ended(), watch(operator, configuration):
            return settled(operator.run(inputs, configuration.of(operator.name)))
    except InvalidInput as error:
        not_of_input = operator.spec.after or isinstance(error, Unplannable)
        violations = () if not_of_input else error.violations
        raise OperatorFailed(operator.name, str(error), violations) from error
    except CircinusError as error:
        raise OperatorFailed(operator.name, str(error)) from error
    except BaseException as error:  # an operator is the user's code: a border
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise  # the user pressed Ctrl-C
        raise OperatorFailed(operator.name, words_of(error)) from error


def watch(operator: Operator, configuration: Configuration) -> Watch:
    """Return what refuses connections of a run that the operator does not declare."""
    spec = operator.spec
    declared = spec.network or bool(spec.called(configuration.of(operator.name)))
    return Watch(operator.name, declared=declared)


def inputs_of(
    graph: PipelineGraph, operator: str, input: Payload, outputs: Mapping[str, Payload]
) -> Payload:
    """Return what an operator's function gets, see `OperatorFunction`."""
    parents = graph.operator(operator).after
    return _together(parents, outputs) if parents else input


def output_of(graph: PipelineGraph, outputs: Mapping[str, Payload]) -> Payload:
    """Return the pipeline's output: the sink's, or {sink: output} when there are several."""
    return _together(graph.sinks, outputs)


def _together(names: tuple[str, ...], outputs: Mapping[str, Payload]) -> Payload:
    return outputs[names[0]] if len(names) == 1 else {name: outputs[name] for name in names}
