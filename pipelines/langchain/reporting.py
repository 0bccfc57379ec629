"""What hosted chat models used, as LangChain's callbacks report it while an operator calls them.

Callbacks cover every call in the operator's context: of a step, a function, an agent. The one
rule: a call beyond those that money was reserved for is refused before it is made, and none goes
unreported. Meanwhile retries and caches of LangChain's own are off, and a copied process lets go
of its parent's connections: two processes that share one get each other's answers.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.caches import BaseCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers.context import register_configure_hook
from langchain_core.vectorstores import VectorStore

from circinus.pipelines.execution.calling import is_collecting, report_lost, report_usage
from circinus.pipelines.execution.connections import is_measured
from circinus.pipelines.langchain.held import chat_models, parts
from circinus.pipelines.langchain.hosted import (
    MOST_CALLS,
    HostedModel,
    clients_of,
    endpoint_name,
    has_address,
    is_serialized_hosted,
)
from circinus.pipelines.langchain.steps import Step
from circinus.pipelines.model.endpoints import EndpointCall, status_of
from circinus.pipelines.model.profile import Unplannable

_MADE_IN = os.getpid()


class OwnConnections:
    """Which process each client has its connections in; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: dict[int, tuple[Any, int]] = {}  # id of a client -> itself, and its process

    def ensure(self, clients: Iterable[Any]) -> None:
        """Close clients' connections of another process; keep those of this one.

        Their ends in the other process stay open: a copy is closed.
        """
        here = os.getpid()
        with self._lock:
            for client in clients:
                _, process = self._process.get(id(client), (client, _MADE_IN))
                self._process[id(client)] = (client, here)  # retained: an id stays one client's
                if process != here:
                    _let_go(client)


def _let_go(client: Any) -> None:  # noqa: ANN401 - of whatever provider
    """Close what a client made by Stainless (OpenAI's, Anthropic's) has open, for httpx to reopen.

    `httpx.Client.close` would end the client itself.
    """
    http = getattr(client, "_client", None)
    transports = [getattr(http, "_transport", None), *getattr(http, "_mounts", {}).values()]
    for transport in transports:
        close = getattr(transport, "close", None)
        if callable(close):  # those that are awaited have none
            close()


class Uncounted(Unplannable):
    """A hosted model was called unexpectedly: no failure of the input's."""


class _Reporter(BaseCallbackHandler):
    """Reports the calls of one attempt, which threads of it may make at once."""

    raise_error = True
    run_inline = True  # also where a call is awaited: as that call's own
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True

    def __init__(self, most: Mapping[str, int]) -> None:
        self._most = most  # endpoint -> calls that the attempt may make
        self._made = Counter[str]()
        self._under_way: dict[UUID, str] = {}  # run -> endpoint
        self._lock = threading.Lock()

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **more: object,
    ) -> None:
        """Refuse an unexpected call; record every other one of a hosted model."""
        endpoint = endpoint_name(str((metadata or {}).get("ls_model_name", "")))
        with self._lock:
            most = self._most.get(endpoint)
            if most is None and not is_serialized_hosted(serialized):
                return
            self._made[endpoint] += 1
            self._under_way[run_id] = endpoint
        where = f"calls of {endpoint} in one run"
        if most is None:
            rule = "must be none: no such model was found in the step (as_one of steps keeps it)"
            raise Uncounted.of(where, rule, 1)
        if self._made[endpoint] > most:
            raise Uncounted.of(where, f"must be at most {most}", self._made[endpoint])

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **more: object) -> None:
        """Report what a call used; Uncounted if the model does not report it."""
        endpoint = self._ended(run_id)
        if endpoint is None:
            return
        used = _usage(response)
        if used is None:
            report_lost(endpoint)
            rule = (
                "must be told by the model (usage_metadata): with stream_usage, where it streams"
            )
            raise Uncounted.of(f"what a call of {endpoint} used", rule, None)
        if used.get("total_cost") == 0:  # LangChain's cache had the answer
            report_usage(endpoint, calls=0, usd=0.0)
            return
        report_usage(
            endpoint,
            input_tokens=used["input_tokens"],
            cached_tokens=(used.get("input_token_details") or {}).get("cache_read") or 0,
            output_tokens=used["output_tokens"],
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: object) -> None:
        """Report a call that failed: a refused one is not charged, of others that is unknown."""
        endpoint = self._ended(run_id)
        if endpoint is None:
            return
        if 400 <= (status_of(error) or 0) < 500:
            report_usage(endpoint, usd=0.0)
        else:
            report_lost(endpoint)

    def _ended(self, run_id: UUID) -> str | None:
        with self._lock:
            return self._under_way.pop(run_id, None)


_reporter: ContextVar[_Reporter | None] = ContextVar("reporter", default=None)
register_configure_hook(_reporter, inheritable=True)


@contextmanager
def reported(models: Sequence[HostedModel], calls: Sequence[EndpointCall]) -> Iterator[None]:
    """Report what hosted models use inside, each at most as often as the calls allow.

    Meanwhile their clients do not try again by themselves: the operator's runner does, and
    every attempt counts. Where reports are not collected, everything is as it was.
    """
    if not is_collecting():
        yield
        return
    _CONNECTIONS.ensure(client for one in models for client in clients_of(one.model))
    most = Counter[str]()
    for call in calls:
        most[call.endpoint] += call.most
    token = _reporter.set(_Reporter(most))
    try:
        with trying_once(again for one in models for again in one.trying_again):
            yield
    finally:
        _reporter.reset(token)


def tries_again(model: BaseChatModel) -> bool:
    """Return whether a model makes failed calls anew, and cannot be made to stop."""
    return not clients_of(model) and getattr(model, "max_retries", 0) not in (0, None)


_CONNECTIONS = OwnConnections()


def _usage(response: LLMResult) -> dict[str, Any] | None:
    generation = next((one for each in response.generations for one in each), None)
    message = generation.message if isinstance(generation, ChatGeneration) else None
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    return None if usage is None else dict(usage)


def remarks_on(operator: str, steps: Sequence[Step], models: Sequence[HostedModel]) -> list[str]:
    """Return remarks on the hosted models that an operator calls."""
    again = {one.endpoint for one in models if tries_again(one.model)}
    often = {one.endpoint: one.most for one in models if one.most >= MOST_CALLS}
    unseen = {type(one).__name__ for step in steps for one in _embeddings(step)}
    caches = cache_names([one for step in steps for one in chat_models(step)])
    return [
        *(
            f"{operator} is measured without {name}: what that answers as it serves is neither "
            "called nor paid, and not in the figures"
            for name in caches
        ),
        *(
            f"{operator} calls {name}, which tries again by itself: what that uses is not seen "
            "(max_retries=0 leaves it to Circinus)"
            for name in sorted(again)
        ),
        *(
            f"{operator} may call {name} {most} times in a run, as far as the chain tells: money "
            "is kept back for as many"
            for name, most in sorted(often.items())
        ),
        *(
            f"{operator} embeds by {name}, which does not tell what it uses: that is not in the "
            "bill"
            for name in sorted(unseen)
        ),
    ]


def _embeddings(step: Step) -> list[Embeddings]:
    """Return the hosted embeddings of the retrievers that a step holds."""
    stores = (getattr(part, "vectorstore", None) for part in parts(step))
    clients = (store.embeddings for store in stores if isinstance(store, VectorStore))
    return [one for one in clients if one is not None and has_address(one)]


class Setting(NamedTuple):
    """A setting as it is wanted: an attribute, or an item of a dict."""

    owner: Any
    name: str
    value: object


class _Overriding:
    """Changes settings as long as they are held; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = Counter[tuple[int, str]]()
        self._before: dict[tuple[int, str], tuple[Any, object]] = {}  # the owner, and what it had

    @contextmanager
    def held(self, settings: Iterable[Setting]) -> Iterator[None]:
        """Have settings as they are wanted, inside."""
        wanted = {(id(one.owner), one.name): one for one in settings}
        with self._lock:
            for key, one in wanted.items():
                self._holders[key] += 1
                if self._holders[key] == 1:
                    self._before[key] = (one.owner, _read(one.owner, one.name))
                    _write(*one)
        try:
            yield
        finally:
            with self._lock:
                for key, one in wanted.items():
                    self._holders[key] -= 1
                    if not self._holders[key]:
                        owner, before = self._before.pop(key)
                        _write(owner, one.name, before)


_MISSING = object()


def _read(owner: Any, name: str) -> object:  # noqa: ANN401 - of whatever provider
    return owner.get(name, _MISSING) if isinstance(owner, dict) else getattr(owner, name)


def _write(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - of whatever provider
    if not isinstance(owner, dict):
        setattr(owner, name, value)
    elif value is _MISSING:
        owner.pop(name, None)
    else:
        owner[name] = value


class _GlobalCache:
    """LangChain's cache for all models of this process, as an attribute."""

    @property
    def cache(self) -> BaseCache | None:
        return get_llm_cache()

    @cache.setter
    def cache(self, value: BaseCache | None) -> None:
        set_llm_cache(value)


_OVERRIDING = _Overriding()
_GLOBAL = _GlobalCache()


def trying_once(clients: Iterable[Any]) -> Any:  # noqa: ANN401 - a context manager
    """Keep clients, or what makes them, from making failed calls anew, inside."""
    return _OVERRIDING.held(Setting(client, "max_retries", 0) for client in clients)


@contextmanager
def uncached(models: Sequence[BaseChatModel]) -> Iterator[None]:
    """Turn LangChain's caches off inside, where that is measured.

    An answer from a cache would be measured as free and quick, and is neither on new inputs.
    """
    caching = [one for one in models if isinstance(one.cache, BaseCache) or one.cache is True]
    if not is_measured() or (get_llm_cache() is None and not caching):
        yield
        return
    settings = [
        Setting(_GLOBAL, "cache", None),
        *(Setting(one, "cache", False) for one in caching),
    ]
    with _OVERRIDING.held(settings):
        yield


def cache_names(models: Sequence[BaseChatModel]) -> list[str]:
    """Return what would answer for models, by the names of the caches' classes, each once."""
    caches = [one.cache if isinstance(one.cache, BaseCache) else get_llm_cache() for one in models]
    return sorted({type(one).__name__ for one in caches if isinstance(one, BaseCache)})
