"""Settings that steps read of their run: its configuration, the context of a graph, sessions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableSerializable,
)
from langchain_core.runnables.config import ensure_config
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.langchain import Reading, as_one, configured, pipeline_from_runnable
from circinus.pipelines.langchain.settings import label_of, value_of
from circinus.pipelines.langchain.values import unpack
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.registry import load_pipeline


class State(TypedDict, total=False):
    text: str
    seen: list[str]


@dataclass
class Context:
    model: str = "small"
    size: int = 1


def _read(chain: Any, **choices: list[Any]) -> Pipeline:  # noqa: ANN401 - what LangChain takes
    reading = Reading(name="own", score=lambda o, e: 1.0, choices=choices)
    return pipeline_from_runnable(chain, reading)


def _outputs(chain: Runnable[Any, Any], pipeline: Pipeline, item: Payload) -> list[Any]:
    """Outputs over all configurations, which are those of the configured chain."""
    assert pipeline.remarks is not None
    pipeline.remarks([item])
    space, found = ConfigurationSpace(pipeline.graph), []
    for configuration in map(space.configuration, range(space.size)):
        output = unpack(pipeline.run(item, configuration))
        assert configured(chain, configuration.as_dict()).invoke(item) == output
        found.append(output)
    return found


def _graph(node: Any, schema: Any = None, **compiled: Any) -> Runnable[Any, Any]:  # noqa: ANN401 - LangGraph's
    made = StateGraph(State, context_schema=schema)
    made.add_node("one", node)
    made.add_edge("__start__", "one")
    return made.compile(**compiled)


def _of_config(text: str, config: RunnableConfig) -> str:
    return f"{text}{config.get('configurable', {}).get('model', 'small')}"


def _of_surroundings(text: str) -> str:
    return f"{text}{ensure_config()['configurable'].get('model', 'small')}"


def _of_runtime(state: State, runtime: Runtime[Context]) -> State:
    return {"text": f"{state['text']} {runtime.context.model} {runtime.context.size}"}


def test_a_setting_that_no_step_reads_is_refused() -> None:
    with pytest.raises(InvalidInput, match="choices must be among the ids none, or what a step"):
        _read(RunnableLambda(lambda d: d["model"]), model=["small", "large"])


def test_text_that_reads_as_a_dict_is_no_choice() -> None:
    with pytest.raises(InvalidInput, match="must be the dict or the list itself, not its JSON"):
        label_of("choices.k", '{"k": 1}')


@pytest.mark.parametrize("value", [{1: "a"}, {"a": object()}, [float("nan")], {"a": (1,)}])
def test_a_value_that_its_json_does_not_say_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"choices\.k must be made of what JSON has"):
        label_of("choices.k", value)


@pytest.mark.parametrize(
    "value", [{"k": 1, "filter": None}, [0.3, 0.7], [], "{question}", "[x", 3]
)
def test_a_label_says_what_it_stands_for(value: object) -> None:
    assert value_of(label_of("choices.k", value)) == value


def test_a_context_without_all_that_it_needs_is_refused() -> None:
    @dataclass
    class Needs:
        model: str
        tenant: str

    def node(state: State, runtime: Runtime[Needs]) -> State:
        return {"text": runtime.context.model}

    pipeline = _read(_graph(node, Needs), model=["small"])
    with pytest.raises(InvalidInput, match="choices must have values for all that Needs"):
        _outputs(_graph(node, Needs), pipeline, {"text": "a"})


@pytest.mark.parametrize("function", [_of_config, _of_surroundings])
def test_what_steps_read_of_the_configuration_is_a_knob_of_theirs(function: Any) -> None:  # noqa: ANN401 - a function
    reads: Runnable[Any, Any] = RunnableLambda(function, name="reads")
    chain = RunnableLambda(str.strip) | reads | RunnableLambda(str.upper, name="up")
    pipeline = _read(chain, model=["small", "large"])

    assert [slot.key for slot in pipeline.graph.slots] == ["reads.model"]
    assert _outputs(chain, pipeline, " a ") == ["ASMALL", "ALARGE"]


def test_a_setting_that_two_nodes_read_is_one_knob() -> None:
    def node(state: State, config: RunnableConfig) -> State:
        return {"text": state["text"] + config["configurable"]["model"]}

    made: Any = StateGraph(State)
    made.add_sequence([("one", node), ("plain", lambda s: s), ("two", node)])
    chain = made.add_edge("__start__", "one").compile()
    pipeline = _read(chain, model=["s", "l"])

    assert [op.name for op in pipeline.graph.operators if op.knobs] == ["one", "two"]
    assert [found["text"] for found in _outputs(chain, pipeline, {"text": ""})] == ["ss", "ll"]


@pytest.mark.parametrize("inside", [False, True])
def test_choices_reach_the_context_of_a_graph(inside: bool) -> None:
    chain = _graph(_of_runtime, Context)
    if inside:
        chain = RunnableLambda(lambda state: state) | chain
    pipeline = _read(chain, model=["small", "large"], size=[1, 2])

    found = [each["text"] for each in _outputs(chain, pipeline, {"text": "a"})]
    assert found == ["a small 1", "a small 2", "a large 1", "a large 2"]


class Search(RunnableSerializable[str, str]):
    """Says what it is configured with."""

    search_kwargs: dict[str, int]
    weights: list[float]

    def invoke(self, input: str, config: RunnableConfig | None = None, **_: object) -> str:
        return f"{input} {self.search_kwargs['k']} {self.weights}"


def test_dicts_and_lists_are_values_of_fields() -> None:
    chain = Search(search_kwargs={"k": 1}, weights=[1.0]).configurable_fields(
        search_kwargs=ConfigurableField(id="kwargs"), weights=ConfigurableField(id="weights")
    )
    pipeline = _read(chain, kwargs=[{"k": 2}, {"k": 3}], weights=[[0.5, 0.5]])

    assert _outputs(chain, pipeline, "a") == ["a 2 [0.5, 0.5]", "a 3 [0.5, 0.5]"]


class _ConfigurableModel(Runnable[Any, Any]):
    """Takes fields at each call, as what `init_chat_model` makes does."""

    __module__ = "langchain.chat_models.base"
    _config_prefix, _configurable_fields = "first_", ["model"]
    _default_config: dict[str, Any] = {}  # noqa: RUF012 - nothing is written into it

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: object) -> Any:  # noqa: ANN401 - LangChain's
        return f"{input} {ensure_config(config)['configurable'].get('first_model')}"


def test_fields_of_a_model_made_at_each_call_are_knobs() -> None:
    chain = RunnableLambda(str.strip) | _ConfigurableModel()
    pipeline = _read(chain, first_model=["small", "large"])

    assert _outputs(chain, pipeline, "a") == ["a small", "a large"]
    with pytest.raises(InvalidInput, match="choices must be among the ids none"):
        _read(chain, first_temperature=[0.0])


@pytest.mark.parametrize("whole", [False, True])
def test_every_run_of_a_graph_with_a_checkpointer_begins_with_nothing(whole: bool) -> None:
    saver = InMemorySaver()

    def node(state: State) -> State:
        return {"seen": [*state.get("seen", []), state["text"]]}

    bound = _graph(node, checkpointer=saver).with_config(configurable={"thread_id": "1"})
    pipeline = _read(as_one(bound) if whole else bound)
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)

    for word in ("a", "b"):
        output: Any = unpack(pipeline.run({"text": word}, configuration))
        assert output["seen"] == [word]
    assert not saver.storage  # and leaves nothing


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_run_of_a_chain_with_a_history_begins_a_session() -> None:
    kept: dict[str, InMemoryChatMessageHistory] = {}
    counting: Any = RunnableLambda(lambda messages: AIMessage(f"{len(messages)}"))
    chain = RunnableWithMessageHistory(
        counting,
        lambda session_id: kept.setdefault(session_id, InMemoryChatMessageHistory()),
    )
    pipeline = _read(chain)
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)

    for _ in range(2):
        output: Any = unpack(pipeline.run("hello", configuration))
        assert output.content == "1"


def test_a_graph_that_sends_or_commands_is_kept_as_one_and_told() -> None:
    def answers(state: State) -> State:
        return {"text": state["text"].upper()}

    sending = StateGraph(State)
    sending.add_node("plan", lambda state: {})
    sending.add_node("one", answers)
    sending.add_edge("__start__", "plan")
    sending.add_conditional_edges("plan", lambda s: [Send("one", {"text": s["text"]})], ["one"])
    commanding = _graph(lambda state: Command(update={"text": state["text"].upper()}))

    for chain, reason in ((sending.compile(), "may send"), (commanding, "may command")):
        pipeline = _read(chain)
        assert pipeline.remarks is not None
        told = " ".join(pipeline.remarks([{"text": "a"}]).remarks)
        assert f"kept as one operator: {'condition' if 'send' in reason else 'node'}" in told
        assert reason in told
        configuration = ConfigurationSpace(pipeline.graph).configuration(0)
        assert unpack(pipeline.run({"text": "a"}, configuration)) == {"text": "A"}


CHAIN = """
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda

chain = RunnableLambda(lambda text: text.upper(), name="up")
other = chain | RunnableLambda(lambda text: text + "!", name="shout")
a_dict = {"up": chain}


def made():
    return other


def plain():
    return 3


def metric(output, expected):
    return float(output == expected)
"""

Load = Callable[..., Pipeline]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Yield what loads from a module of this text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def loaded(text: str, attribute: str = "chain") -> Pipeline:
        (tmp_path / "my_chain.py").write_text(text)
        sys.modules.pop("my_chain", None)
        return load_pipeline(f"my_chain:{attribute}", allow_import=True)

    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    yield loaded
    sys.dont_write_bytecode = before
    sys.modules.pop("my_chain", None)


def test_a_chain_without_a_metric_is_refused(load: Load) -> None:
    with pytest.raises(InvalidInput, match=r"metric must be a function .* in module my_chain"):
        load(CHAIN.replace("def metric", "def other_metric"))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ("'abc'", "must be pairs .*, got 'str'"),
        ("[]", "must have at least one"),
        ("[('a', 'A'), 'b']", "number 2 must be pairs"),
        ("[{'input': 'a'}]", "number 1 must be pairs"),
    ],
)
def test_examples_that_are_none_are_refused(load: Load, examples: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load(f"{CHAIN}\nexamples = {examples}")


def test_choices_that_are_none_are_refused(load: Load) -> None:
    with pytest.raises(InvalidInput, match=r"choices must be \{id: values\} in module my_chain"):
        load(f"{CHAIN}\nchoices = ['k']")


def test_what_is_no_chain_is_refused(load: Load) -> None:
    with pytest.raises(InvalidInput, match="must name a Pipeline, a LangChain chain"):
        load(CHAIN, "plain")


def test_more_examples_than_there_are_are_refused(load: Load) -> None:
    pipeline = load(f"{CHAIN}\nexamples = [('a', 'A'), ('b', 'B')]")

    assert pipeline.examples is not None
    with pytest.raises(InvalidInput, match="must be at most 2: module my_chain has no more"):
        pipeline.examples(3, 0)


@pytest.mark.parametrize(
    ("attribute", "name", "operators"),
    [
        ("chain", "my_chain", ["up"]),
        ("other", "my_chain.other", ["up", "shout"]),
        ("made", "my_chain.made", ["up", "shout"]),
        ("a_dict", "my_chain.a_dict", ["up", "output"]),
    ],
)
def test_a_chain_is_read_with_its_metric(
    load: Load, attribute: str, name: str, operators: list[str]
) -> None:
    pipeline = load(CHAIN, attribute)

    assert pipeline.name == name
    assert [one.name for one in pipeline.operators] == operators
    assert pipeline.score_of("A", "A") == 1.0
    assert (pipeline.examples, pipeline.example_count) == (None, None)


def test_a_fixed_set_is_taken_in_its_order_or_by_the_seed(load: Load) -> None:
    given = [(letter, letter.upper()) for letter in "abcdefgh"]
    pipeline = load(f"{CHAIN}\nexamples = {given}")

    assert pipeline.example_count == 8
    assert pipeline.examples is not None
    texts = ["".join(str(one.input) for one in pipeline.examples(5, s).examples) for s in range(3)]
    assert texts[0] == "abcde"
    assert len(set(texts)) == 3
    assert pipeline.examples(5, 2) == pipeline.examples(5, 2)


def test_examples_may_be_dicts_with_messages_or_made(load: Load) -> None:
    dicts = "examples = [{'input': HumanMessage('a'), 'expected': 'A'}]"
    made = "def examples(count, seed):\n    return [(str(i + seed), '') for i in range(count)]"
    of_dicts, of_function = load(f"{CHAIN}\n{dicts}"), load(f"{CHAIN}\n{made}")

    assert of_dicts.examples is not None
    assert of_function.examples is not None
    packed = of_dicts.examples(1, 0).examples[0].input
    assert isinstance(packed, dict)
    assert packed["$langchain"] == "HumanMessage"
    assert [one.input for one in of_function.examples(2, 5).examples] == ["5", "6"]
    assert of_function.example_count is None


def test_another_chain_is_another_version(load: Load) -> None:
    first, same = load(CHAIN), load(CHAIN)
    changed = load(CHAIN.replace("text.upper()", "text.lower()"))

    assert first.operators[0].version == same.operators[0].version
    assert first.operators[0].version != changed.operators[0].version
