"""Which hosted chat models a step calls, and under which of its options.

A chat model is hosted where LangChain reports that it has secrets or an address: then it is called
over the network and paid by the call. Every other one (a fake, weights in this process) is a step
like any other. The one rule: what may be called is known before it is called, or refused then
(`reporting`), so that no call goes unpaid.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableBinding,
    RunnableBranch,
    RunnableParallel,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.configurable import (
    RunnableConfigurableAlternatives,
    RunnableConfigurableFields,
)
from langchain_core.runnables.passthrough import RunnableAssign
from langchain_core.runnables.retry import RunnableRetry

from circinus.pipelines.execution.suggested import SuggestedEndpoint
from circinus.pipelines.langchain.held import held_by, identity
from circinus.pipelines.langchain.settings import run_config
from circinus.pipelines.model.endpoints import EndpointCall
from circinus.pipelines.model.operators import KnobValue

MOST_CALLS = 10
"""Calls of one model that a run may make where it is not known: in functions, loops and agents.
One more is refused; money is reserved for as many."""

_ONCE_EACH = (
    *(RunnableSequence, RunnableParallel, RunnableAssign, RunnableBranch),
    *(RunnableBinding, RunnableWithFallbacks, dict, list, tuple),
)
"""What runs what it holds once at most."""
_ADDRESS = re.compile(r"(?:^|_)(?:base_url|api_base|api_url|endpoint_url|azure_endpoint)$")
_CLIENTS = ("root_client", "root_async_client", "_client", "_async_client")
"""Where chat models keep the clients of their providers."""
_MOST_VALUES = 10_000  # that are looked at: what holds more is data

_MadeLate = Any  # a _ConfigurableModel of the package langchain, which need not be there
Knobs = Mapping[str, Sequence[KnobValue]]
Options = Mapping[str, KnobValue]
_Chosen = frozenset[tuple[str, KnobValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedModel:
    """A hosted chat model that a step calls."""

    endpoint: str  # its name, made one of an endpoint
    name: str  # as its provider calls it
    provider: str  # as LangChain calls it
    address: str  # where it is; empty: where its provider has it
    most_input_tokens: int | None  # that it can read, as LangChain knows it; None: not known
    most_output_tokens: int | None  # that it is asked to write; None: not bounded
    draws: bool  # whether equal inputs may give unlike outputs: no temperature of 0 is asked for
    model: BaseChatModel
    when: Options = field(default_factory=dict)  # options with which it is called; empty: any
    most: int = 1  # calls that a run may make
    repeats: bool = False  # whether the chain makes failed calls anew (`with_retry`)
    late: dict[str, Any] | None = None  # what it is made with, in each call; None: it is made

    @property
    def call(self) -> EndpointCall:
        """The same as of an operator."""
        return EndpointCall(endpoint=self.endpoint, when=self.when, most=self.most)

    @property
    def trying_again(self) -> list[Any]:
        """What makes failed calls anew by `max_retries`, or hands that on."""
        return clients_of(self.model) if self.late is None else [self.late]

    @property
    def suggested(self) -> SuggestedEndpoint:
        """The same as what an infrastructure should have."""
        return SuggestedEndpoint(
            name=self.endpoint,
            model=self.name,
            provider=self.provider,
            address=self.address,
            most_input_tokens=self.most_input_tokens,
            most_output_tokens=self.most_output_tokens,
        )


def hosted_models(steps: Sequence[Runnable[Any, Any]], knobs: Knobs) -> tuple[HostedModel, ...]:
    """Return the hosted models that steps call, once for each endpoint and options.

    Knobs are those of the operator that runs the steps. An option that makes no difference to
    whether an endpoint is called is left out.
    """
    by_endpoint: dict[str, dict[_Chosen, HostedModel]] = {}
    for step in steps:
        for one in _Walk(knobs).models(step):
            variants = by_endpoint.setdefault(one.endpoint, {})
            key = frozenset(one.when.items())
            variants[key] = _joined(variants[key], one, sum) if key in variants else one
    return tuple(
        one for variants in by_endpoint.values() for one in _without_idle(variants, knobs).values()
    )


def endpoint_name(model: str) -> str:
    """Return a model's name as that of an endpoint: letters, digits, '_', '.', '-'."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", model).strip("-_.") or "model"
    return (name if name[0].isalpha() else f"model-{name}")[:63]


def is_hosted(model: BaseChatModel) -> bool:
    """Return whether a chat model is called over the network, paid by the call."""
    return bool(_name(model)) and bool(model.lc_secrets or _address(model))


def is_serialized_hosted(serialized: Mapping[str, Any]) -> bool:
    """Return whether a model as LangChain serialises it is hosted."""
    fields = serialized.get("kwargs") or {}
    secrets = any(isinstance(v, dict) and v.get("type") == "secret" for v in fields.values())
    return secrets or any(_ADDRESS.search(name) and value for name, value in fields.items())


def has_address(client: object) -> bool:
    """Return whether a client of anything else has an address or a secret."""
    fields = getattr(type(client), "model_fields", {})
    names = (name for name in fields if _ADDRESS.search(name) or name.endswith("api_key"))
    return any(getattr(client, name, None) for name in names)


class _Reached(NamedTuple):
    """A value on the way to a model."""

    value: object
    when: dict[str, KnobValue]  # options with which it is reached
    bindings: Mapping[str, Any]  # what bindings add to the call
    times: int  # how often a run may reach it
    is_known: bool  # whether that is known
    repeats: bool = False  # whether what leads to it makes failed calls anew
    late: dict[str, Any] | None = None  # see `HostedModel`


class _Walk:
    """One look through a step."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._visited: dict[tuple[tuple[int, ...], _Chosen], object] = {}

    def models(self, step: object) -> Iterator[HostedModel]:
        waiting = deque([_Reached(step, {}, {}, 1, is_known=True)])
        while waiting and len(self._visited) < _MOST_VALUES:
            at = waiting.popleft()
            if isinstance(at.value, BaseChatModel) and is_hosted(at.value):
                yield _hosted(at, at.value)
            elif self._is_new(at):
                waiting.extend(self._inside(at))

    def _is_new(self, at: _Reached) -> bool:
        key = (identity(at.value), frozenset(at.when.items()))
        if isinstance(at.value, str | bytes | int | float | None) or key in self._visited:
            return False
        self._visited[key] = at.value  # retained: an id stays one value's
        return True

    def _inside(self, at: _Reached) -> Iterator[_Reached]:
        value = at.value
        if isinstance(value, RunnableConfigurableAlternatives):
            yield from self._alternatives(at, value)
        elif isinstance(value, RunnableConfigurableFields):
            yield from self._fields(at, value)
        elif is_made_late(value):
            yield from self._made_late(at, cast(Any, value))
        else:
            bindings, times, is_known = dict(at.bindings), at.times, at.is_known
            repeats = at.repeats or _makes_anew(value)
            if isinstance(value, RunnableBinding):
                bindings |= value.kwargs
            if isinstance(value, RunnableRetry):
                times *= value.max_attempt_number
            elif is_known and not isinstance(value, _ONCE_EACH):
                times, is_known = max(times, MOST_CALLS), False
            for each in held_by(value):
                yield at._replace(
                    value=each, bindings=bindings, times=times, is_known=is_known, repeats=repeats
                )

    def _alternatives(
        self, at: _Reached, value: RunnableConfigurableAlternatives[Any, Any]
    ) -> Iterator[_Reached]:
        knob, every = value.which.id, {value.default_key: value.default, **value.alternatives}
        for key, alternative in every.items():
            if at.when.get(knob, key) == key:
                made = alternative if isinstance(alternative, Runnable) else alternative()
                when = {**at.when, knob: key} if knob in self._knobs else at.when
                yield at._replace(value=made, when=when)

    def _fields(
        self, at: _Reached, value: RunnableConfigurableFields[Any, Any]
    ) -> Iterator[_Reached]:
        ids = [one.id for one in value.fields.values() if one.id in self._knobs]
        if not isinstance(value.default, BaseChatModel):
            ids = []
        for options in self._chosen(at, ids):
            made, _ = value.prepare(run_config(options, ()))
            yield at._replace(value=made, when={**at.when, **options})

    def _made_late(self, at: _Reached, value: _MadeLate) -> Iterator[_Reached]:
        """Yield the models that `init_chat_model` makes anew in each call; it may name none."""
        ids = [knob for knob in self._knobs if takes(value, knob)]
        for options in self._chosen(at, ids):
            with suppress(Exception):  # of whatever provider: what cannot be made is not called
                made = value._model(run_config(options, ()))
                when, late = {**at.when, **options}, value._default_config
                yield at._replace(value=made, when=when, late=late)

    def _chosen(self, at: _Reached, ids: Sequence[str]) -> Iterator[dict[str, KnobValue]]:
        """Yield the options by which something is configured, including those that led to it."""
        for chosen in product(*(self._knobs[knob] for knob in ids)):
            options = dict(zip(ids, chosen, strict=True))
            if all(at.when.get(knob, v) == v for knob, v in options.items()):
                yield options


def is_made_late(value: object) -> bool:
    """Return whether it is of `init_chat_model` and makes its model in each call."""
    kind = type(value)
    return kind.__name__ == "_ConfigurableModel" and kind.__module__.startswith("langchain")


def takes(value: _MadeLate, name: str) -> bool:
    """Return whether such a model is configured by an id."""
    own, fields = name.removeprefix(value._config_prefix), value._configurable_fields
    return name.startswith(value._config_prefix) and (fields == "any" or own in fields)


def _makes_anew(value: object) -> bool:
    """Return whether it runs what it holds again where that fails, as nodes of a graph may."""
    of_graph = type(value).__module__.startswith("langgraph")
    policy = of_graph and getattr(value, "retry_policy", None)
    return isinstance(value, RunnableRetry) or bool(policy)


def _hosted(at: _Reached, model: BaseChatModel) -> HostedModel:
    parameters = _model_parameters(model, at.bindings)
    name = str(parameters["ls_model_name"])
    temperature = parameters.get("ls_temperature")
    return HostedModel(
        endpoint=endpoint_name(name),
        name=name,
        provider=str(parameters.get("ls_provider", "")),
        address=_address(model),
        most_input_tokens=(model.profile or {}).get("max_input_tokens"),
        most_output_tokens=parameters.get("ls_max_tokens"),
        draws=temperature is None or temperature > 0,
        model=model,
        when=at.when,
        most=at.times,
        repeats=at.repeats,
        late=at.late,
    )


def _without_idle(models: dict[_Chosen, HostedModel], knobs: Knobs) -> dict[_Chosen, HostedModel]:
    """Return the same with the options left out all of whose values lead to the endpoint."""
    for knob in sorted({name for key in models for name, _ in key}):
        rest: dict[_Chosen, list[HostedModel]] = {}
        for key, one in models.items():
            if knob in dict(key):
                rest.setdefault(key - {(knob, dict(key)[knob])}, []).append(one)
        for key, every in rest.items():
            if len(every) == len(knobs[knob]):
                for one in every:
                    del models[frozenset(one.when.items())]
                whole = replace(every[0], when=dict(key))
                for one in every[1:]:
                    whole = _joined(whole, one, max)
                models[key] = _joined(models[key], whole, sum) if key in models else whole
    return models


def _joined(a: HostedModel, b: HostedModel, most: Callable[[Sequence[int]], int]) -> HostedModel:
    """Return one that stands for both: it writes as much as either, and draws if either does."""
    written = (a.most_output_tokens, b.most_output_tokens)
    bounded = None if None in written else max(each for each in written if each is not None)
    return replace(
        a,
        most_output_tokens=bounded,
        draws=a.draws or b.draws,
        repeats=a.repeats or b.repeats,
        most=most((a.most, b.most)),
    )


def _model_parameters(model: BaseChatModel, bound: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters that a model reports, called with what a binding adds."""
    return model._get_ls_params(**bound)


def _name(model: BaseChatModel) -> str:
    return str(_model_parameters(model, {}).get("ls_model_name", ""))


def clients_of(model: BaseChatModel) -> list[Any]:
    """Return the clients of a model's provider, which try again by themselves; none: not known."""
    clients = (getattr(model, name, None) for name in _CLIENTS)
    return [one for one in clients if isinstance(getattr(one, "max_retries", None), int)]


def _address(model: BaseChatModel) -> str:
    """Return where a model is called; empty: it does not state that.

    Its client knows, also where that is from the environment.
    """
    addresses = [getattr(one, "base_url", None) for one in clients_of(model)]
    named = (name for name in type(model).model_fields if _ADDRESS.search(name))
    addresses += [getattr(model, name) for name in named]
    return next((str(each) for each in addresses if each), "")
