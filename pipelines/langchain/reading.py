"""LangChain Runnables as pipelines, and planned pipelines as Runnables.

Reading a chain: the steps of a `RunnableSequence`, the branches of a `RunnableParallel`, what
`RunnablePassthrough.assign` adds and the nodes of a compiled LangGraph graph (`graphs`) become
operators, in any nesting; every other Runnable is one operator, whatever it does inside, and
what only hands on or picks keys is none. A `configurable_alternatives`, and a
`configurable_fields` with options, becomes a knob named for its id; a field without options
becomes one when `choices` lists values for it, and keeps its default otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Any, cast

from langchain_core.runnables import (
    RunnableBinding,
    RunnableConfig,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
    RunnablePick,
    RunnableSequence,
)
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.passthrough import RunnableAssign

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.connections import add_model
from circinus.pipelines.execution.metrics import SetMetric, positionals
from circinus.pipelines.execution.pipeline import Checked, Pipeline, Score
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.langchain import graphs
from circinus.pipelines.langchain.checking import remarks_of
from circinus.pipelines.langchain.held import chat_models, parts, samples
from circinus.pipelines.langchain.hosted import HostedModel, hosted_models
from circinus.pipelines.langchain.knobs import Knobs
from circinus.pipelines.langchain.reporting import remarks_on, reported, uncached
from circinus.pipelines.langchain.settings import graphs_with_context, is_graph, run_config
from circinus.pipelines.langchain.steps import (
    INHERITED,
    INPUT,
    NAMES,
    Call,
    ReadStep,
    Source,
    Step,
    by_hand,
    by_id,
    carried_by,
    hands_on,
)
from circinus.pipelines.langchain.values import carry_classes_of, comparable, pack, unpack
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import CallRetries
from circinus.pipelines.model.operators import KnobValue, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.user_code import settled

_CONFIGURED_STEPS = 256  # settings of one operator held ready to run
_GETTERS = (itemgetter, attrgetter)  # pick a part of their input, and do nothing else
_SAMPLES = "samples, as its model's temperature is above 0: it is planned for the mean over draws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a chain does not state itself."""

    name: str  # name of the pipeline
    score: Score | SetMetric  # the metric, of single outputs or of all together
    metric: str = "score"  # what the score means, in words
    features: Callable[[Payload], FloatArray] | None = None  # few and cheap, to draw strata by
    examples: Callable[[int, int], Dataset] | None = None  # `(count, seed)`: data of its own
    # values to try for configurable fields without options, and for what steps read of the
    # configuration or the context of their run, by id; dicts and lists, too
    choices: Mapping[str, Sequence[object]] = field(default_factory=dict)
    version: str = "1"  # change it when a step's code changes: cached outputs are keyed by it
    draws: tuple[str, ...] = ()  # operators that may answer equal inputs differently, by name


def pipeline_from_runnable(chain: Step, reading: Reading) -> Pipeline:
    """Return the pipeline that a Runnable is, or what LangChain makes one of (a dict, a function).

    InvalidInput for anything else, unknown ids and ids of two steps.
    """
    chain = _runnable(chain)
    carry_classes_of(reading.score, reading.examples)
    reader = _Reader(reading)
    end = reader.walk(chain, INPUT, "")
    if not reader.is_whole(end):
        reader.add("output", (RunnablePassthrough(),), end)
    for name in reading.draws:
        checks.among("draws", name, [operator.name for operator in reader.operators])
    reader.knobs.require_all()
    score, features = reading.score, reading.features
    pipeline = Pipeline(
        name=reading.name,
        operators=tuple(reader.operators),
        score=_of_payloads(score),
        metric=reading.metric,
        features=features and (lambda item: features(unpack(item))),
        examples=reading.examples and partial(_examples, reading.examples),
        suggested=tuple({one.endpoint: one.suggested for one in reader.hosted}.values()),
    )
    notes = tuple(reader.remarks)
    check = partial(remarks_of, chain, tuple(reader.read), pipeline)

    def remarks(inputs: Sequence[Payload]) -> Checked:
        checked = check(inputs)
        return checked._replace(remarks=notes + checked.remarks)

    return replace(pipeline, remarks=remarks)


def _of_payloads(score: Score | SetMetric) -> Score | SetMetric:
    """Return the metric for values as they travel: the author's sees the chain's own values."""
    if isinstance(score, SetMetric):
        return replace(score, read=unpack)
    plain: Callable[..., float] = score
    if positionals(score) > 2:
        return lambda output, expected, inputs: plain(*map(unpack, (output, expected, inputs)))
    return lambda output, expected: plain(unpack(output), unpack(expected))


def _runnable(chain: object) -> Step:
    try:
        return coerce_to_runnable(cast("Step", chain))
    except TypeError as error:
        rule = "must be a Runnable, a function or a dict of them; a graph must be compiled"
        raise InvalidInput.of("chain", rule, type(chain).__name__) from error


def _examples(made: Callable[[int, int], Dataset], count: int, seed: int) -> Dataset:
    """Return examples as they travel: those of an author may hold messages."""
    data = made(count, seed)
    packed = [Example(input=pack(one.input), expected=pack(one.expected)) for one in data.examples]
    return Dataset(name=data.name, examples=packed)


class _Whole(RunnableBinding[Any, Any]):
    """A step that is not looked into."""

    draws: bool = False
    network: bool = False  # see `OperatorSpec.network`


def as_one(
    step: Step, name: str | None = None, *, draws: bool = False, network: bool = False
) -> Step:
    """Return a step that becomes one operator of this name, whatever it is made of.

    One that `draws` may answer equal inputs differently; `network` declares that it connects to
    something that costs nothing.
    """
    config = RunnableConfig(run_name=name) if name else RunnableConfig()
    return _Whole(bound=_runnable(step), config=config, draws=draws, network=network)


def configured(
    chain: Step, configuration: Configuration | Mapping[str, Mapping[str, KnobValue]]
) -> Step:
    """Return the chain that a pipeline was read off, configured as planned.

    The configuration is a plan's, or as a plan's JSON has it: {operator: {knob: value}}.
    """
    if isinstance(configuration, Configuration):
        configuration = configuration.as_dict()
    step = _runnable(chain)
    return step.with_config(run_config(by_id(configuration), graphs_with_context(step)))


def runnable_of(pipeline: Pipeline, configuration: Configuration) -> Step:
    """Return any planned pipeline as a Runnable: a sequence for a chain, else one step."""
    steps = [_step_of(operator, configuration) for operator in pipeline.by_name.values()]
    is_chain = all(
        parents == ((i - 1,) if i else ()) for i, parents in enumerate(pipeline.graph.parents)
    )
    if not is_chain or len(steps) == 1:
        return _named(pipeline.name, lambda item: pipeline.run(item, configuration))
    return RunnableSequence(*steps, name=pipeline.name)


def _step_of(operator: Operator, configuration: Configuration) -> Step:
    settings = configuration.of(operator.name)
    return _named(operator.name, lambda item: settled(operator.run(item, settings)))


def _named(name: str, run: Callable[[Payload], Payload]) -> Step:
    return RunnableLambda(lambda item: unpack(run(pack(item))), name=name)


class _Reader:
    """Collects the operators of a chain while walking it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.operators: list[Operator] = []
        self.read: list[ReadStep] = []
        self.remarks: list[str] = []  # what was read otherwise than step by step
        self.hosted: list[HostedModel] = []
        self.knobs = Knobs(reading.choices)
        self._tags = RunnableConfig()  # tags and metadata of what is being walked
        self._outputs: dict[str, Source] = {}
        self._carriers: set[str] = set()  # operators that hand the pipeline's input on, too

    def walk(self, step: Step, source: Source, label: str) -> Source:
        """Return the source of the step's output, having added the operators inside it."""
        # What a class of one's own makes of its steps is not known: it is one operator.
        if type(step) is RunnableSequence:
            for inner in step.steps:
                source = self.walk(inner, source, label if len(step.steps) == 1 else "")
            return source
        if type(step) is RunnableParallel:
            return self._keys({k: self.walk(s, source, k) for k, s in step.steps__.items()})
        if type(step) is RunnableAssign:
            added = {k: self.walk(s, source, k) for k, s in step.mapper.steps__.items()}
            return self._keys(added, base=source)
        if passed := _passed(step, source):
            return passed
        if is_graph(step):
            with self._inheriting(cast("Any", step).config or RunnableConfig()):
                return graphs.read(self, step, source, label or step.get_name())
        if isinstance(step, RunnableBinding):
            label = step.config.get("run_name") or label
            if _only_annotates(step):
                with self._inheriting(step.config):
                    return self.walk(step.bound, source, label)
        return self.add(label or _name_of(step), (step,), source)

    def add(
        self,
        label: str,
        steps: Sequence[Step],
        source: Source,
        body: Callable[[Any, Call], Any] | None = None,
    ) -> Source:
        """Return the source of a new operator's output; without a body, it is one step."""
        carry_classes_of(*steps)
        name = self._free_name(label)
        read = ReadStep(
            operator=name,
            steps=tuple(steps),
            body=body or (lambda item, call: call(steps[0], item)),
            source=source,
            tags=self._tags,
            carriers=self._carriers,
            graphs=graphs_with_context(*steps),
        )

        @lru_cache(maxsize=_CONFIGURED_STEPS)
        def called(items: tuple[tuple[str, KnobValue], ...]) -> Call:
            return by_hand(read.configured(dict(items)))

        knobs = self.knobs.of(name, steps)
        hosted = hosted_models(steps, {knob.name: knob.values for knob in knobs})
        models = [one for step in steps for one in chat_models(step)]
        self.remarks += remarks_on(name, steps, hosted)
        spec = OperatorSpec(
            name=name,
            after=source.after,
            knobs=knobs,
            calls=tuple(one.call for one in hosted),
            draws=self._draws(name, steps) or any(one.draws for one in hosted),
            network=any(isinstance(step, _Whole) and step.network for step in steps),
        )

        def run(inputs: Payload, knobs: Settings) -> Payload:
            with uncached(models), reported(hosted, spec.called(knobs)):
                return read.output(inputs, called(tuple(knobs.items())))

        # Who makes failed calls anew in the chain does so here: both together would multiply
        again = CallRetries(attempts=1) if any(one.repeats for one in hosted) else CallRetries()
        operator = Operator(
            spec=spec,
            run=run,
            version=self._reading.version,
            comparable=comparable,
            retries=again,
        )
        for one in hosted:
            add_model(one.address, one.name)
        self.hosted += hosted
        self.read.append(read)
        self.operators.append(operator)
        self._outputs[name] = Source((name,), lambda outputs, item: read.own(outputs[name]))
        return self._outputs[name]

    def _draws(self, name: str, steps: Sequence[Step]) -> bool:
        every = [part for step in steps for part in parts(step)]
        declared = any(isinstance(part, _Whole) and part.draws for part in every)
        if sampled := any(samples(step) for step in steps):
            self.remarks.append(f"{name} {_SAMPLES}")
        return declared or sampled or name in self._reading.draws

    def is_whole(self, source: Source) -> bool:
        """Return whether it is the output of the only operator that nothing comes after."""
        inner = {parent for op in self.operators for parent in op.spec.after}
        sinks = [op.name for op in self.operators if op.name not in inner]
        return len(sinks) == 1 and source is self._outputs[sinks[0]]

    @contextmanager
    def _inheriting(self, config: RunnableConfig) -> Iterator[None]:
        outer = self._tags
        inner = {key: value for key, value in config.items() if key in INHERITED and value}
        self._tags = merge_configs(outer, cast("RunnableConfig", inner))
        yield
        self._tags = outer

    def _keys(self, items: Mapping[str, Source], base: Source | None = None) -> Source:
        """Return a dict with a source for each key, laid over a base when there is one."""
        sources = [*([base] if base else []), *items.values()]
        carrier = next((part.after[0] for part in sources if part.after), None)
        if carrier:  # then later steps cannot reach the input
            items = {key: self._carried(part, carrier) for key, part in items.items()}
            base = base and self._carried(base, carrier)
            sources = [*([base] if base else []), *items.values()]

        def made(outputs: Mapping[str, Payload], item: Payload) -> Payload:
            parts = {key: part.made(outputs, item) for key, part in items.items()}
            under: Payload = {} if base is None else base.made(outputs, item)
            if not isinstance(under, dict):
                raise InvalidInput.of("assign", "must be given a dict", type(under).__name__)
            return {**under, **parts}

        return Source(tuple(dict.fromkeys(name for s in sources for name in s.after)), made)

    def _carried(self, source: Source, carrier: str) -> Source:
        """Return a source that no longer needs the pipeline's input.

        What is made of the input alone is handed on by the operators that lead to `carrier`: an
        operator beside them would ask for a part of a machine and compute nothing.
        """
        if source.after:
            return source
        specs = {operator.name: operator.spec for operator in self.operators}
        way = [carrier]
        while after := specs[way[-1]].after:
            way.append(after[0])
        self._carriers.update(way)
        return Source(
            (carrier,), lambda outputs, item: source.made({}, carried_by(outputs[carrier]))
        )

    def _free_name(self, label: str) -> str:
        taken = {operator.name for operator in self.operators}
        base = re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-_.") or "step"
        base = (base if base[0].isalpha() else f"step-{base}")[:55]
        names = [base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))]
        return next(name for name in names if name not in taken)


def _name_of(step: Step) -> str:
    """Return a step's own name, that of its default where it can be configured."""
    while isinstance(step, DynamicRunnable) and not step.name:
        step = step.default
    return step.get_name()


def _passed(step: Step, source: Source) -> Source | None:
    """Return where the output of a step is that passes on its input, or a part; None: others."""
    if hands_on(step):
        return source
    getter = getattr(step, "func", None) if type(step) is RunnableLambda else None
    if isinstance(getter, _GETTERS):
        return Source(
            source.after, lambda outputs, item: pack(getter(unpack(source.made(outputs, item))))
        )
    if type(step) is RunnablePick:
        return Source(source.after, lambda outputs, item: _pick(step, source, outputs, item))
    return None


def _pick(
    step: RunnablePick, source: Source, outputs: Mapping[str, Payload], item: Payload
) -> Payload:
    value = source.made(outputs, item)
    if not isinstance(value, dict):
        raise InvalidInput.of("pick", "must be given a dict", type(value).__name__)
    return cast("Payload", step.invoke(value))


def _only_annotates(step: RunnableBinding[Any, Any]) -> bool:
    """Return whether a binding is a name, tags or metadata and nothing else."""
    plain = type(step) is RunnableBinding and not step.kwargs and not step.config_factories
    return plain and not set(step.config) - NAMES - INHERITED
