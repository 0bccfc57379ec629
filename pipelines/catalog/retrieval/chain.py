"""The chain, in LangChain's words.

One rule: this file knows LangChain and no algorithm. It is imported when the pipeline is made, as
LangChain takes a second to load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableConfig,
    RunnableSerializable,
)

from circinus.pipelines.catalog.retrieval.cases import checked_request, chunked
from circinus.pipelines.catalog.retrieval.retrieving import (
    READERS,
    RERANKERS,
    RETRIEVERS,
    retrieved,
)
from circinus.pipelines.model.payload import Payload

Step = RunnableSerializable[Payload, Payload]
Config: TypeAlias = RunnableConfig | None  # as LangChain has it; no step needs any


class Chunker(Step):
    """Cuts documents into passages of `size` sentences, under the title if `titled`."""

    size: int = 3
    titled: bool = False

    def invoke(self, input: Payload, config: Config = None, **kwargs: object) -> Payload:
        """Return the question with the passages."""
        request = checked_request(input, "documents")
        return request.handing_on(chunked(request.texts, self.size, titled=self.titled))


class Retriever(Step):
    """Finds the `k` passages that fit best by one method."""

    method: str
    k: int = 3

    def invoke(self, input: Payload, config: Config = None, **kwargs: object) -> Payload:
        """Return the question with the passages found, best first."""
        request = checked_request(input, "passages")
        ranking = RETRIEVERS[self.method]
        return request.handing_on(retrieved(request.question, request.texts, ranking, self.k))


class Reranker(Step):
    """Puts passages in a better order by one method."""

    method: str

    def invoke(self, input: Payload, config: Config = None, **kwargs: object) -> Payload:
        """Return the question with the best passages, best first."""
        request = checked_request(input, "passages")
        return request.handing_on(RERANKERS[self.method](request.question, request.texts))


class Reader(Step):
    """Answers by one method."""

    method: str

    def invoke(self, input: Payload, config: Config = None, **kwargs: object) -> Payload:
        """Return the answer, a text."""
        request = checked_request(input, "passages")
        return READERS[self.method](request.question, request.texts)


def chain() -> Runnable[Payload, Payload]:
    """Return the chain; ids: `size` and `titled`, `k` and `retrieval`, `reranking`, `reading`."""
    chunker = Chunker().configurable_fields(
        size=ConfigurableField(id="size"), titled=ConfigurableField(id="titled")
    )
    k = ConfigurableField(id="k")
    retriever = _choice(
        "retrieval", RETRIEVERS, lambda name: Retriever(method=name).configurable_fields(k=k)
    )
    return (
        _named("chunker", chunker)
        | _named("retriever", retriever)
        | _named("reranker", _choice("reranking", RERANKERS, lambda name: Reranker(method=name)))
        | _named("reader", _choice("reading", READERS, lambda name: Reader(method=name)))
    )


def _choice(id_: str, methods: Iterable[str], made: Callable[[str], Step]) -> Step:
    """Return a step with one alternative for each method, the first by default."""
    default, *others = methods
    alternatives: dict[str, Any] = {name: made(name) for name in others}  # passed by `**`
    return made(default).configurable_alternatives(
        ConfigurableField(id=id_), default_key=default, **alternatives
    )


def _named(name: str, step: Step) -> Step:
    # What configures a step does not take over its name, and operators are called by it.
    return step.model_copy(update={"name": name})
