import enum
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import PydanticOutputParser
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import BaseModel, ConfigDict, PrivateAttr

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable
from circinus.pipelines.langchain.values import (
    NotCarried,
    carry_classes_of,
    comparable,
    pack,
    unpack,
)
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload, decode, encode


class Kind(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Word(BaseModel):
    model_config = ConfigDict(extra="allow")
    text: str
    kind: Kind = Kind.GOOD
    _count: int = PrivateAttr(default=0)


class Sentence(BaseModel):
    words: list[Word]
    id: str = ""


class Span(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Slotted:
    span: Span


@dataclass
class Found:
    at: list[Slotted]
    made_once: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.made_once.append(1)

    @cached_property
    def length(self) -> int:
        return len(self.at)


class Unnamed(BaseModel):
    text: str


def _there_and_back(value: Any) -> Any:  # noqa: ANN401 - whatever travels
    return unpack(decode(encode(pack(value))))


def test_an_object_of_a_class_that_no_step_names_is_refused_with_what_makes_it_a_payload() -> None:
    with pytest.raises(NotCarried, match=r"\.model_dump.* makes it one\), got 'Unnamed'"):
        pack(Unnamed(text="a"))


def test_a_payload_from_elsewhere_makes_no_object_of_an_unnamed_class() -> None:
    sent: Payload = {"$langchain": f"{__name__}.Unnamed", "$fields": {"fields": {"text": "a"}}}
    with pytest.raises(InvalidInput, match="must be of a class that the chain names"):
        unpack(sent)


def test_no_step_is_made_of_a_payload() -> None:
    class Tool(RunnableLambda[Any, Any]):
        pass

    carry_classes_of(Tool)
    with pytest.raises(InvalidInput, match="must be of a class that the chain names"):
        unpack({"$langchain": f"{__name__}.{Tool.__qualname__}", "$fields": {}})


@pytest.mark.parametrize("fields", [{}, {"fields": 3}, {"fields": {}, "set": 1}])
def test_fields_that_are_not_those_of_the_class_are_refused(fields: dict[str, object]) -> None:
    carry_classes_of(Word)
    with pytest.raises(InvalidInput, match="must have the fields of"):
        unpack({"$langchain": f"{__name__}.Word", "$fields": fields})  # type: ignore[dict-item]  # wrong on purpose


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (Counter("ab"), ""),
        (datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Oslo")), "isoformat"),
        ((each for each in "ab"), "list"),
    ],
)
def test_what_would_arrive_as_something_else_is_refused(value: object, remedy: str) -> None:
    with pytest.raises(NotCarried, match=f"must be made of .*{remedy}.*got"):
        pack(value)


def test_models_dataclasses_enums_and_named_tuples_arrive_as_they_were() -> None:
    carry_classes_of(lambda: (Sentence, Found))
    word = Word(text="tin", kind=Kind.BAD, more=[Kind.GOOD])  # type: ignore[call-arg]  # an extra one
    word._count = 3
    found = Found(at=[Slotted(span=Span(1, 2))])
    assert found.length == 1  # worked out, and kept in the object

    for value in (Sentence(words=[word]), found, Kind.GOOD, Span(1, 2), {"a": (word, found)}):
        back = _there_and_back(value)
        assert back == value
        assert type(back) is type(value)
    again = _there_and_back(word)
    assert again._count == 3
    assert again.model_fields_set == {"text", "kind", "more"}
    assert _there_and_back(Sentence(words=[])).model_fields_set == {"words"}
    assert _there_and_back(found).made_once == [1]  # no constructor ran


@pytest.mark.parametrize(
    "value",
    [
        {1, 2, 30},
        frozenset("abc"),
        {1: "a", (2, 3): "b", None: "c"},
        {"$langchain": "text", "$set": [1]},
        {"a": {"$fields": 1}},
        date(2024, 2, 29),
        datetime(2024, 2, 29, 1, 2, 3, 4),
        datetime(2024, 2, 29, tzinfo=UTC),
        clock(1, 2),
        timedelta(days=-1, microseconds=7),
        Decimal("1.10"),
        UUID(int=7),
        (1, [np.float32(2.5)], {"a": (1,)}),
    ],
)
def test_sets_dates_and_dicts_of_any_keys_arrive_as_they_were(value: Any) -> None:  # noqa: ANN401 - whatever travels
    back = _there_and_back(value)

    assert back == value
    assert type(back) is type(value)
    assert list(back) == list(value) if isinstance(value, dict) else True


def test_ids_of_messages_make_no_difference_and_those_of_one_s_own_do() -> None:
    carry_classes_of(Sentence)

    assert comparable(pack(AIMessage("a", id="1"))) == comparable(pack(AIMessage("a", id="2")))
    assert comparable(pack(Sentence(words=[], id="1"))) != comparable(pack(Sentence(words=[])))


def _is_text(word: Any, expected: Payload) -> float:  # noqa: ANN401 - a word
    return float(word.text == expected)


_PARSED: Runnable[Any, Any] = RunnableLambda(
    lambda x: f'{{"text": "{x}"}}'
) | PydanticOutputParser(pydantic_object=Word)


@pytest.mark.parametrize(
    "chain",
    [
        _PARSED,
        as_one(_PARSED),
        _PARSED | RunnableLambda(lambda word: word.model_copy()),
        _PARSED
        | {"word": RunnableLambda(lambda word: word)}
        | RunnableLambda(lambda d: d["word"]),
    ],
)
def test_a_chain_gives_objects_between_steps_and_at_its_end(chain: Runnable[Any, Any]) -> None:
    pipeline = pipeline_from_runnable(chain, Reading(name="own", score=_is_text))
    assert pipeline.remarks is not None
    assert pipeline.remarks(["tin"]) == ((), ())

    output = pipeline.run("tin", ConfigurationSpace(pipeline.graph).configuration(0))

    assert unpack(output) == Word(text="tin")
    assert pipeline.score_of(decode(encode(output)), "tin") == 1.0
