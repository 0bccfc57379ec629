"""Small chains and graphs as users write them: each is planned as it is, or refused by name.

A case gives the chain, inputs it takes, and what is expected: outputs that depend on the knobs, so
that one that is not handed on shows, or the words of the refusal.
"""

import enum
import operator
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableBranch,
    RunnableConfig,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
    RunnableSequence,
    RunnableSerializable,
    chain,
)
from langchain_core.runnables.utils import ConfigurableFieldSingleOption
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from circinus import as_one

Value = Any  # steps hand on whatever they like
Step = Runnable[Value, Value]
WORDS = ["cat dog", "dog", "bird cat fish", "fish bird", "cat cat dog"]
LIBRARY = ["a cat sleeps", "a dog barks", "a bird sings", "a fish swims", "cat and dog play"]
OPTIONS = {"few": 1, "some": 2, "many": 4}


@dataclass(frozen=True)
class Case:
    """A chain, or what is said of it when it is refused."""

    name: str
    make: Callable[[], Step]
    inputs: Sequence[Any] = tuple(WORDS)
    refused: str = ""  # a pattern of the refusal; empty when it is planned
    remark: str = ""  # a pattern of what is told
    knobs: int = 0  # how many it has
    choices: dict[str, list[Any]] = field(default_factory=dict)


class Library(BaseRetriever):
    """Returns the k texts that share most words with the question."""

    k: int = 2

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        asked = set(query.split())
        ranked = sorted(LIBRARY, key=lambda text: -len(asked & set(text.split())))
        return [
            Document(page_content=text, metadata={"rank": i})
            for i, text in enumerate(ranked[: self.k])
        ]


class Echo(FakeListChatModel):
    """A model that answers with the last characters of what it is asked."""

    responses: list[str] = Field(default_factory=list)
    length: int = 5

    def _call(self, messages: list[BaseMessage], *args: Value, **more: Value) -> str:
        return str(messages[-1].content)[-self.length :]


class AsyncEcho(Echo):
    """Can be asked asynchronously alone."""

    def _call(self, messages: list[BaseMessage], *args: Value, **more: Value) -> str:
        raise NotImplementedError

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Value, **more: Value
    ) -> ChatResult:
        message = AIMessage(super()._call(messages))
        return ChatResult(generations=[ChatGeneration(message=message)])


class Guarded(RunnableSequence[Any, Any]):
    """Does not run its steps on some inputs."""

    def invoke(self, input: Value, config: RunnableConfig | None = None, **more: Value) -> Value:
        return "no birds" if "bird" in input else super().invoke(input, config, **more)


class Scale(RunnableSerializable[Any, Any]):
    """Repeats; how often can be configured."""

    times: int = 1

    def invoke(self, input: Value, config: RunnableConfig | None = None, **_: Value) -> Value:
        return input * self.times


class AsyncScale(Scale):
    """Can be asked asynchronously alone."""

    def invoke(self, input: Value, config: RunnableConfig | None = None, **_: Value) -> Value:
        raise NotImplementedError

    async def ainvoke(
        self, input: Value, config: RunnableConfig | None = None, **_: Value
    ) -> Value:
        return input * self.times


def _options(id_: str, **options: int) -> ConfigurableFieldSingleOption:
    return ConfigurableFieldSingleOption(id=id_, options=options, default=next(iter(options)))


def library(id_: str = "k") -> Step:
    return Library().configurable_fields(k=_options(id_, **OPTIONS))


def echo(id_: str = "length") -> Step:
    return Echo().configurable_fields(length=_options(id_, short=3, long=12))


def scale(id_: str = "times", cls: type[Scale] = Scale) -> Step:
    return cls().configurable_fields(times=_options(id_, once=1, twice=2))


def cased(id_: str = "case") -> RunnableSerializable[Value, Value]:
    upper = RunnableLambda(lambda x: x.upper())
    field = ConfigurableField(id=id_)
    return RunnablePassthrough().configurable_alternatives(field, default_key="same", upper=upper)


def texts(documents: list[Document]) -> str:
    return " | ".join(f"{d.page_content}#{d.metadata['rank']}" for d in documents)


def called(step: Step) -> Step:
    """A lambda around a step, as people write it."""
    return RunnableLambda(lambda x: step.invoke(x), name="called")


PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Answer."), ("human", "{context} ? {question}")]
)


def rag(retriever: Step) -> Step:
    return (
        {"context": retriever | texts, "question": RunnablePassthrough()}
        | PROMPT
        | echo()
        | StrOutputParser()
    )


async def _upper(text: str) -> str:
    return text.upper()


def _letters(chunks: Iterator[str]) -> Iterator[str]:
    for chunk in chunks:
        yield from chunk[::2]


async def _aletters(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    async for chunk in chunks:
        yield chunk[::2]


def _yielding(text: str) -> Iterator[str]:
    yield text
    yield "!"


@chain
def _decorated(text: str) -> str:
    return text[::-1]


@chain  # type: ignore[arg-type]  # its types know no configuration
def _asks_config(text: str, config: RunnableConfig) -> str:
    return text + str(config.get("configurable", {}).get("times", "none"))


@tool
def shout(text: str) -> str:
    """Shout it."""
    return text + "!"


@tool
async def ashout(text: str) -> str:
    """Shout it, asynchronously."""
    return text + "!!"


def _fails(text: str) -> str:
    if "dog" in text:
        raise ValueError("no dogs")
    return text


class _Flaky:
    """Fails every first time."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, text: str) -> str:
        self.seen = not self.seen
        if self.seen:
            raise ValueError("first time")
        return text.title()


class State(TypedDict, total=False):
    text: str
    found: list[Any]
    log: Annotated[list[str], operator.add]
    messages: list[AnyMessage]


def graph(
    nodes: dict[str, Any],
    edges: Sequence[tuple[Any, str]],
    conditions: dict[str, tuple[Any, Any]] | None = None,
    compiled: dict[str, Any] | None = None,
    **per_node: Value,
) -> Step:
    from langgraph.graph import StateGraph

    made = StateGraph(State)
    for name, node in nodes.items():
        made.add_node(name, node, **per_node)
    for start, end in edges:
        made.add_edge(start, end)
    for start, (path, ends) in (conditions or {}).items():
        made.add_conditional_edges(start, path, ends)
    return made.compile(**(compiled or {}))


def _note(name: str) -> Callable[[State], State]:
    return lambda state: {"log": [f"{name}:{state['text'][:3]}"]}


def _retrieve(state: State) -> State:
    return {"found": LIBRARY_STEP.invoke(state["text"]), "log": ["retrieved"]}


LIBRARY_STEP = library()


def _text(step: Step) -> Step:
    return RunnableLambda(lambda s: s["text"]) | step | RunnableLambda(lambda t: {"text": t})


def _kind(state: State) -> Literal["short", "long"]:
    return "short" if len(state["text"]) < 8 else "long"


def _branching() -> Step:
    nodes = {
        "start": _text(cased()),
        "short": _text(scale()),
        "long": _note("long"),
        "end": _note("end"),
    }
    edges = [("__start__", "start"), ("short", "end"), ("long", "end"), ("end", "__end__")]
    return graph(nodes, edges, {"start": (_kind, None)})


def _loop() -> Step:
    nodes = {"grow": _text(scale("growth")) | (lambda s: {"text": s["text"] + "."})}
    ends = {True: "grow", False: "__end__"}
    return graph(nodes, [("__start__", "grow")], {"grow": (lambda s: len(s["text"]) < 20, ends)})


def _command(state: State) -> Value:
    from langgraph.types import Command

    return Command(update={"text": "went"}, goto="two")


def _send(state: State) -> Value:
    from langgraph.types import Send

    return [Send("two", {"text": word}) for word in state["text"].split()]


def _retries() -> Value:
    from langgraph.types import RetryPolicy

    return RetryPolicy(max_attempts=2)


def _merge(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    old.update(new)
    return old


class Merging(TypedDict):
    seen: Annotated[dict[str, int], _merge]


def _merging() -> Step:
    from langgraph.graph import StateGraph

    made = StateGraph(Merging)
    made.add_node("count", lambda state: {"seen": {"n": len(state["seen"])}})
    made.add_edge("__start__", "count")
    return made.compile()


def _skipping() -> Step:
    nodes = {"start": _note("start"), "more": _text(scale()), "end": _note("end")}
    edges = [("__start__", "start"), ("more", "end")]
    ends = {"short": "end", "long": "more"}
    return graph(nodes, edges, {"start": (_kind, ends)})


async def _anode(state: State) -> State:
    return {"text": state["text"].upper()}


def _chat_node(state: State) -> State:
    return {
        "messages": [*state["messages"], AIMessage(content=state["messages"][-1].content[-3:])]
    }


LINE = [("__start__", "one"), ("one", "two"), ("two", "__end__")]


def _generator_around() -> Step:
    step = scale()

    def around(text: str) -> Iterator[str]:
        yield step.invoke(text)

    return RunnableLambda(around)


def _async_around() -> Step:
    step = scale()

    async def around(text: str) -> str:
        return str(await step.ainvoke(text))

    return RunnableLambda(around)


HIDDEN = [library()]


def _calling(text: str) -> AIMessage:
    call = {"name": "look", "args": {"for": text}, "id": "1"}
    return AIMessage.model_validate({"content": text, "tool_calls": [call]})


def _adding_messages() -> Step:
    from langgraph.graph import MessagesState, StateGraph

    made = StateGraph(MessagesState)
    made.add_node("one", lambda s: {"messages": [AIMessage(s["messages"][-1].content * 2)]})
    made.add_node("two", lambda s: {"messages": AIMessage(str(len(s["messages"])))})
    for start, end in LINE:
        made.add_edge(start, end)
    return made.compile()


def _several(state: State) -> list[str]:
    return ["a", "b"] if len(state["text"]) < 8 else ["a"]


class Asked(TypedDict):
    text: str


class Answered(TypedDict):
    length: list[int]


class Everything(Asked, Answered):
    hidden: int


def _with_schemas() -> Step:
    from langgraph.graph import StateGraph

    made = StateGraph(Everything, input_schema=Asked, output_schema=Answered)
    made.add_node("one", lambda s: {"hidden": len(s["text"])})
    made.add_node("two", lambda s: {"length": [s["hidden"]]})
    for start, end in LINE:
        made.add_edge(start, end)
    return made.compile()


class Strict(BaseModel):
    text: str


def _pydantic() -> Step:
    from langgraph.graph import StateGraph

    made = StateGraph(Strict)
    made.add_node("one", lambda s: {"text": s.text + "!"})
    made.add_edge("__start__", "one")
    return made.compile()


def _asking() -> Step:
    from langgraph.runtime import Runtime

    def ask(state: State, runtime: Runtime[None]) -> State:
        return {"text": state["text"] + "r"}

    ask.__annotations__["runtime"] = Runtime
    return graph({"one": ask}, LINE[:1])


def _streaming(state: State) -> State:
    from langgraph.config import get_stream_writer

    get_stream_writer()("on its way")
    return {"text": state["text"]}


def _agent() -> Step:
    return graph({"one": lambda s: {"text": AGENT_SCALE.invoke(s["text"])}}, LINE[:1])


AGENT_SCALE = scale("agent")
AGENT = _agent()


def _asking_agent(text: str) -> str:
    return str(AGENT.invoke({"text": text})["text"])


def _scaled_by(text: str, step: Step) -> str:
    return str(step.invoke(text))


def _with_default(step: Step) -> Callable[[str], str]:
    def call(text: str, by: Step = step) -> str:
        return str(by.invoke(text))

    return call


def _of_dict(steps: dict[str, Step]) -> Callable[[str], str]:
    return lambda text: str([step.invoke(text) for step in steps.values()])


@dataclass
class _Holding:
    step: Step


@dataclass
class _Asking:
    held: _Holding

    def ask(self, text: str) -> str:
        return str(self.held.step.invoke(text))

    def __call__(self, text: str) -> str:
        return self.ask(text)


HELPING = scale("helping")


def _helper(text: str) -> str:
    return str(HELPING.invoke(text))


def _helping(text: str) -> str:
    return _helper(text)


def _tool_around() -> Step:
    step = scale()

    @tool
    def scaled(text: str) -> str:
        """Scale it."""
        return str(step.invoke(text))

    return scaled


def _chunks_around(step: Step) -> Step:
    def chunks(given: Iterator[str]) -> Iterator[str]:
        for chunk in given:
            yield step.invoke(chunk)

    return RunnableGenerator(chunks)


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Pair(NamedTuple):
    one: int
    other: int


def _random_then(given: Value) -> Step:
    return part(lambda x: random.random()) | part(lambda x: given, name="gives") | part(str)


def _scored(text: str) -> Document:
    return Document(page_content=text, metadata={"score": np.float32(len(text) / 10)})


ACME = {"tenant": "acme"}


def _tenant(text: str, config: RunnableConfig) -> str:
    return f"{text} of {config['metadata'].get('tenant')}"


def _told(state: State, config: RunnableConfig) -> State:
    return {"text": f"{config['metadata'].get('tenant')} {'callbacks' in config}"}


def _redacting() -> Step:
    from langgraph.graph import MessagesState, StateGraph

    made = StateGraph(MessagesState)
    hidden = partial(HumanMessage, "hidden")
    made.add_node("hide", lambda s: {"messages": [hidden(id=s["messages"][0].id)]})
    made.add_node("answer", lambda s: {"messages": [AIMessage("seen")]})
    made.add_edge("__start__", "hide")
    made.add_edge("__start__", "answer")
    return made.compile()


def _extend(old: list[int], new: list[int]) -> list[int]:
    old.extend(new)
    return old


class Growing(TypedDict):
    seen: Annotated[list[int], _extend]


def _growing(conditions: dict[str, tuple[Value, list[str]]]) -> Step:
    from langgraph.graph import StateGraph

    made = StateGraph(Growing)
    made.add_node("one", lambda state: {"seen": [len(state["seen"])]})
    made.add_node("two", lambda state: {"seen": [-1]})
    for start, end in LINE:
        if start not in conditions:
            made.add_edge(start, end)
    for start, (path, ends) in conditions.items():
        made.add_conditional_edges(start, path, ends)
    return made.compile()


GROWN = [{"seen": [len(word)]} for word in WORDS]
STATES = [{"text": text, "log": []} for text in WORDS]
TALKS = [{"messages": [HumanMessage(content=text)]} for text in WORDS]
MODEL = {"question": RunnablePassthrough(), "context": library() | texts}
part = partial(RunnableLambda)

CASES = [
    # retrieval chains
    Case("retriever and formatter", lambda: library() | texts, knobs=1),
    Case("usual retrieval chain", lambda: rag(library()), knobs=2),
    Case("retriever called in a lambda", lambda: rag(called(library())), knobs=2),
    Case("retriever alone gives documents", lambda: library(), knobs=1),
    Case("prompt alone gives a prompt value", lambda: MODEL | PROMPT, knobs=1),
    Case("model at the end gives a message", lambda: MODEL | PROMPT | echo(), knobs=2),
    Case(
        "string prompt",
        lambda: (
            MODEL
            | PromptTemplate.from_template("{context}/{question}")
            | (lambda p: p.to_string())
        ),
        knobs=1,
    ),
    Case(
        "retrieval kept beside its answer",
        lambda: RunnableParallel(docs=library(), q=RunnablePassthrough()).assign(
            answer=part(lambda d: texts(d["docs"])) | scale()
        ),
        knobs=2,
    ),
    Case(
        "answer picked",
        lambda: (
            RunnableParallel(docs=library(), q=RunnablePassthrough())
            .assign(answer=part(lambda d: texts(d["docs"])))
            .pick("answer")
            | cased()
        ),
        knobs=2,
    ),
    Case(
        "pick of several keys",
        lambda: RunnableParallel(a=scale(), b=cased(), c=RunnablePassthrough()).pick(["a", "c"]),
        knobs=2,
    ),
    Case(
        "two retrievers",
        lambda: (
            {"a": library("k1") | texts, "b": called(library("k2")) | texts}
            | part(lambda d: d["a"] + d["b"])
        ),
        knobs=2,
    ),
    Case(
        "k without options",
        lambda: Library().configurable_fields(k=ConfigurableField(id="k")) | texts,
        knobs=1,
        choices={"k": [1, 3]},
    ),
    Case(
        "lambda calls a lambda that retrieves", lambda: called(called(library())) | texts, knobs=1
    ),
    # branches, parallels, bindings
    Case("branch", lambda: RunnableBranch((lambda x: "cat" in x, scale()), cased()), knobs=2),
    Case(
        "branch in a sequence",
        lambda: (
            cased()
            | RunnableBranch((lambda x: len(x) < 8, scale()), part(lambda x: x[::-1]))
            | part(len)
        ),
        knobs=2,
    ),
    Case(
        "parallel in parallel",
        lambda: {"a": {"b": scale(), "c": {"d": cased()}}, "e": RunnablePassthrough()} | part(str),
        knobs=2,
    ),
    Case(
        "router by lambda",
        lambda: part(lambda x: scale() if "cat" in x else part(str.upper)),
        knobs=0,
    ),
    Case(
        "router that knows its steps",
        lambda: (lambda a, b: part(lambda x: a if "cat" in x else b))(scale(), cased()),
        knobs=2,
    ),
    Case("map over words", lambda: part(str.split) | scale().map() | part(" ".join), knobs=1),
    Case("bound arguments", lambda: part(lambda x, times=1: x * times).bind(times=3)),
    Case("named sequence", lambda: (scale() | cased()).with_config(run_name="both"), knobs=2),
    Case(
        "preset configuration",
        lambda: (scale() | cased()).with_config(configurable={"times": "twice"}),
        knobs=2,
    ),
    Case("kept as one", lambda: part(str.strip) | as_one(scale() | cased(), name="both"), knobs=2),
    Case(
        "alternatives in alternatives",
        lambda: cased().configurable_alternatives(
            ConfigurableField(id="kind"), default_key="a", b=scale()
        ),
        knobs=3,
    ),
    Case(
        "passthrough with a function",
        lambda: scale() | RunnablePassthrough(lambda x: None),
        knobs=1,
    ),
    # functions of other kinds
    Case("decorated", lambda: _decorated | cased(), knobs=1),
    Case(
        "asks for its configuration",
        lambda: _asks_config | scale(),
        refused="operator asks_config must give",
    ),
    Case("generator function", lambda: part(_yielding) | scale(), knobs=1),
    Case("runnable generator", lambda: RunnableGenerator(_letters) | scale(), knobs=1),
    Case("async generator alone", lambda: RunnableGenerator(_aletters) | scale(), knobs=1),
    Case("async function alone", lambda: part(_upper) | scale(), knobs=1),
    Case("model that is async alone", AsyncEcho),
    Case(
        "sequence of a class of one's own",
        lambda: Guarded(first=part(str.strip), last=scale()) | cased(),
        knobs=2,
    ),
    Case("async step with a knob", lambda: part(str.strip) | scale(cls=AsyncScale), knobs=1),
    Case(
        "async inside a parallel kept as one",
        lambda: as_one(RunnableParallel(a=part(_upper), b=scale())),
        knobs=1,
    ),
    Case("tool", lambda: part(lambda x: {"text": x}) | shout | scale(), knobs=1),
    Case("async tool", lambda: part(lambda x: {"text": x}) | ashout),
    Case(
        "random step",
        lambda: part(lambda x: random.random()) | part(str),
        remark="gives another output each time",
    ),
    Case(
        "gives tuples", lambda: part(lambda x: (x, len(x))) | part(lambda pair: pair[0] * pair[1])
    ),
    Case(
        "gives what cannot be sent",
        lambda: part(lambda x: object(), name="opaque") | part(str),
        refused="output of operator opaque must be made of .* got 'object'",
    ),
    Case("kept as one what cannot be sent", lambda: as_one(part(lambda x: {x}) | part(sorted))),
    Case("knob without effect", lambda: scale() | part(lambda x: len(x) > 0), knobs=1),
    Case(
        "idle knob",
        lambda: as_one(part(lambda x: x[:0]) | scale()),
        knobs=1,
        remark=r"knob .*\.times changed nothing on 5 inputs",
    ),
    Case(
        "one id twice",
        lambda: scale() | part(str.strip) | scale(),
        knobs=1,
    ),
    Case(
        "id that is no name",
        lambda: scale("how often"),
        refused="configurable id of Scale must start with a letter",
    ),
    # failures on the way
    Case("fallback", lambda: part(_fails).with_fallbacks([scale()]), knobs=1),
    Case(
        "retry",
        lambda: (
            part(_Flaky(), name="flaky").with_retry(
                wait_exponential_jitter=False, stop_after_attempt=3
            )
            | scale()
        ),
        knobs=1,
    ),
    # graphs
    Case(
        "graph in a line",
        lambda: graph({"one": _text(scale()), "two": _text(cased())}, LINE),
        STATES,
        knobs=2,
    ),
    Case(
        "graph that retrieves in a function",
        lambda: graph({"one": _retrieve, "two": lambda s: {"text": texts(s["found"])}}, LINE),
        STATES,
        knobs=1,
    ),
    Case("graph with a condition", _branching, STATES, knobs=2),
    Case(
        "graph with branches that join",
        lambda: graph(
            {n: _note(n) for n in "abcd"},
            [
                ("__start__", "b"),
                ("__start__", "a"),
                ("a", "c"),
                ("b", "d"),
                (["c", "d"], "__end__"),
            ],
        ),
        STATES,
    ),
    Case(
        "graph that waits for several",
        lambda: graph(
            {"a": _note("a"), "b": _text(scale()), "c": _note("c")},
            [("__start__", "a"), ("__start__", "b"), (["a", "b"], "c")],
        ),
        STATES,
        knobs=1,
    ),
    Case(
        "graph with a conditional beginning",
        lambda: graph(
            {"short": _note("s"), "long": _text(scale())}, [], {"__start__": (_kind, None)}
        ),
        STATES,
        knobs=1,
    ),
    Case(
        "graph between steps",
        lambda: (
            part(lambda t: {"text": t})
            | graph({"one": _text(scale()), "two": _note("two")}, LINE)
            | part(lambda s: s["log"])
        ),
        knobs=1,
    ),
    Case(
        "graph with messages", lambda: graph({"one": _chat_node, "two": _chat_node}, LINE), TALKS
    ),
    Case(
        "graph with an async node",
        lambda: graph({"one": _anode, "two": _text(scale())}, LINE),
        STATES,
        knobs=1,
    ),
    Case(
        "graph with paths of unlike length",
        lambda: graph({"one": _note("one"), "two": _note("two")}, [*LINE, ("__start__", "two")]),
        STATES,
        remark="node two may run in more than one superstep",
    ),
    Case("graph with a loop", _loop, STATES, knobs=1, remark="it has the loop grow -> grow"),
    Case(
        "graph that commands where no edge leads",
        lambda: graph({"one": _command, "two": _note("two")}, [("__start__", "one")]),
        STATES,
        remark="kept as one operator: node one may command",
    ),
    Case(
        "graph that commands besides its edges",
        lambda: graph({"one": _command, "two": _note("two")}, LINE),
        STATES,
        remark="kept as one operator: node one may command",
    ),
    Case(
        "graph that sends",
        lambda: graph(
            {"one": _note("one"), "two": _note("two")}, LINE[:1], {"one": (_send, ["two"])}
        ),
        STATES,
        remark="kept as one operator: condition _send after one may send",
    ),
    Case(
        "graph that sends from its beginning",
        lambda: graph({"two": _note("two")}, [], {"__start__": (_send, ["two"])}),
        STATES,
        remark="kept as one operator: condition _send after __start__ may send",
    ),
    Case(
        "graph that sends, kept as one",
        lambda: as_one(
            graph({"one": _note("one"), "two": _note("two")}, LINE[:1], {"one": (_send, ["two"])})
        ),
        STATES,
    ),
    Case(
        "graph whose reducer writes into the state",
        _merging,
        [{"seen": {word: 1}} for word in WORDS],
    ),
    Case(
        "graph kept as one that retrieves in a function",
        lambda: as_one(
            graph({"one": _retrieve, "two": lambda s: {"text": texts(s["found"])}}, LINE)
        ),
        STATES,
        knobs=1,
    ),
    Case(
        "graph with a step that may be skipped",
        _skipping,
        STATES,
        knobs=1,
        remark="node end may run in more than one superstep",
    ),
    Case(
        "graph with retries",
        lambda: graph({"one": _text(scale()), "two": _note("two")}, LINE, retry_policy=_retries()),
        STATES,
        knobs=1,
        remark="node one does more than give an update",
    ),
    Case(
        "graph in a graph",
        lambda: graph(
            {"one": graph({"one": _text(scale()), "two": _note("in")}, LINE), "two": _note("two")},
            LINE,
        ),
        STATES,
        knobs=1,
    ),
    Case(
        "graph with an interrupt",
        lambda: graph(
            {"one": _note("one"), "two": _note("two")},
            LINE,
            compiled={"interrupt_before": ["two"]},
        ),
        STATES,
        refused="graph LangGraph must be compiled without interrupts",
    ),
    Case("graph kept as one", lambda: as_one(_branching()), STATES, knobs=2),
    # steps that hold steps where LangChain may not tell
    Case("generator that calls a step", _generator_around, knobs=1),
    Case("async function that calls a step", _async_around, knobs=1),
    Case(
        "condition that calls a step",
        lambda: (
            lambda s: RunnableBranch(
                (lambda x: len(s.invoke(x)) > 8, part(str.upper)), part(str.lower)
            )
        )(scale()),
        knobs=1,
    ),
    Case(
        "fallback that calls a step",
        lambda: part(lambda x: 1 / 0).with_fallbacks([called(scale())]),
        knobs=1,
    ),
    Case("retried step that calls a step", lambda: called(scale()).with_retry(), knobs=1),
    Case(
        "step in a list, configured elsewhere",
        lambda: library() | texts | part(lambda x: HIDDEN[0].invoke(x), name="hides"),
        knobs=1,
    ),
    Case(
        "step made in a lambda, configured elsewhere",
        lambda: RunnableParallel(
            {"a": library() | texts, "b": part(lambda x: library().invoke(x))}
        ),
        refused="operator b must give",
    ),
    Case(
        "ids with a prefix",
        lambda: RunnablePassthrough().configurable_alternatives(
            ConfigurableField(id="m"), default_key="p", prefix_keys=True, q=scale()
        ),
        refused="configurable id of RunnablePassthrough must start",
    ),
    Case(
        "step that writes into its input",
        lambda: (
            part(str.split)
            | {"a": part(lambda d: d.append("x") or d, name="writes"), "b": part(len)}
        ),
        refused="operator a must leave what it is given as it was",
    ),
    Case(
        "message with a tool call",
        lambda: part(_calling) | part(lambda m: str(m.tool_calls) + m.content),
    ),
    # graphs that are more than nodes and edges
    Case("graph with messages that are added", _adding_messages, TALKS),
    Case(
        "graph that goes to several",
        lambda: graph(
            {"s": _note("s"), "a": _note("a"), "b": _text(scale())},
            [("__start__", "s")],
            {"s": (_several, ["a", "b"])},
        ),
        STATES,
        knobs=1,
    ),
    Case(
        "graph that waits for what may not come",
        lambda: graph(
            {n: _note(n) for n in "sabc"},
            [("__start__", "s"), (["a", "b"], "c")],
            {"s": (_several, ["a", "b"])},
        ),
        STATES,
    ),
    Case("graph with schemas of input and output", _with_schemas, STATES),
    Case(
        "graph with a node that gives nothing",
        lambda: graph({"one": lambda s: None, "two": _note("two")}, LINE),
        STATES,
    ),
    Case(
        "graph with a state that is no dict",
        _pydantic,
        STATES,
        remark="its state Strict is no TypedDict",
    ),
    Case(
        "graph with a node that asks for the runtime",
        _asking,
        STATES,
        remark="node one asks for the runtime",
    ),
    Case(
        "graph with a node that streams",
        lambda: graph({"one": _streaming}, LINE[:1]),
        STATES,
        refused="operator one must give",
    ),
    # knobs where LangChain does not look
    Case(
        "function that calls a graph that calls a step",
        lambda: part(_asking_agent, name="agent") | cased(),
        knobs=2,
    ),
    Case("step in a partial", lambda: part(partial(_scaled_by, step=scale())), knobs=1),
    Case("step in a default", lambda: part(_with_default(scale())), knobs=1),
    Case("step in a dict", lambda: part(_of_dict({"a": scale()})), knobs=1),
    Case("step in an attribute", lambda: part(_Asking(_Holding(scale())).ask), knobs=1),
    Case("step in an object that is called", lambda: part(_Asking(_Holding(scale()))), knobs=1),
    Case("step two helpers away", lambda: part(lambda x: _helping(x) + "."), knobs=1),
    Case("tool that calls a step", lambda: part(lambda x: {"text": x}) | _tool_around(), knobs=1),
    Case("runnable generator that calls a step", lambda: _chunks_around(scale()), knobs=1),
    Case(
        "node that calls a graph",
        lambda: graph({"one": lambda s: AGENT.invoke(s), "two": _note("two")}, LINE),
        STATES,
        knobs=1,
    ),
    Case(
        "id with two sets of options in one step",
        lambda: as_one(scale("k") | part(_of_dict({"a": library("k")}))),
        refused="operator RunnableSequence must have one set of options .*k has options",
    ),
    # what would arrive as something else
    Case(
        "numpy's numbers",
        lambda: part(lambda x: np.mean([len(x), 2.25])) | part(lambda m: str(m.round(1))),
    ),
    Case(
        "numpy's numbers in documents",
        lambda: part(_scored) | part(lambda d: f"{d.metadata['score']} {d.page_content}"),
    ),
    Case(
        "text of a class of its own",
        lambda: part(_calling) | part(lambda m: m.text) | part(lambda t: t.upper()),
    ),
    Case(
        "gives a counter",
        partial(_random_then, Counter("aab")),
        refused="output of operator gives must be made of .* got 'Counter'",
    ),
    *(
        Case(
            f"gives {type(given).__name__}",
            partial(_random_then, given),
            remark="another output each time",
        )
        for given in (Colour.RED, Number.ONE, Pair(1, 2))
    ),
    Case(
        "random step before one that writes into its input",
        lambda: (
            part(lambda x: [x, str(random.random())])
            | {"a": part(lambda d: d.append("x") or d, name="writes"), "b": part(len)}
        ),
        refused="operator a must leave what it is given as it was",
    ),
    Case(
        "random step before one that puts an object into its input",
        lambda: (
            part(lambda x: [x, str(random.random())])
            | {"a": part(lambda d: d.append(object()) or "a", name="writes"), "b": part(len)}
        ),
        refused="operator a must leave what it is given as it was",
    ),
    Case(
        "random step before one that writes into what nobody else sees",
        lambda: (
            part(lambda x: [x, random.random()]) | part(lambda d: d.append("x") or d) | part(len)
        ),
        remark="another output each time",
    ),
    # what a step is told
    Case(
        "metadata of a step", lambda: part(_tenant).with_config(metadata=ACME) | cased(), knobs=1
    ),
    Case(
        "metadata and tags of a sequence",
        lambda: (part(_tenant) | cased()).with_config(metadata=ACME, tags=["t"]) | scale(),
        knobs=2,
    ),
    Case(
        "graph with metadata",
        lambda: graph({"one": _told, "two": _text(cased())}, LINE).with_config(metadata=ACME),
        STATES,
        knobs=1,
    ),
    # graphs as LangGraph runs them
    Case("graph with two beginnings, messages without ids", _redacting, TALKS),
    Case("graph whose reducer grows what it is given", lambda: _growing({}), GROWN),
    Case(
        "graph whose reducer grows what conditions see",
        lambda: _growing({"one": (lambda s: "two", ["two"])}),
        GROWN,
    ),
    Case(
        "graph whose reducer grows what the first condition sees",
        lambda: _growing({"__start__": (lambda s: "one", ["one"])}),
        GROWN,
    ),
]
