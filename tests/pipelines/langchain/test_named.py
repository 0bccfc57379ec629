"""Chains by name: a module of one's own with a chain, and its metric and examples beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.registry import load_pipeline

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
