"""The workload: documents about invented entities, a question about one of them, its answer.

Names are drawn from the seed's part of the material: seeds that differ modulo 3 have no name in
common. A name is a head and a tail, so that a retriever has to tell `Ashley` from `Ashby`; the
number of tails is no multiple of 3, so each part has all heads and tails. All parts share
sentences: wordings of its own would make a part harder or easier. Documents, namesakes, roundabout
wording and misspelt words make a case hard. Requests are checked on the way into every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from circinus.pipelines import checks
from circinus.pipelines.catalog.material import PARTS, Item, part_of
from circinus.pipelines.catalog.retrieval.wording import has_word, sentences_of
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A property of an entity, how documents state it and people ask for it: `wordings.yaml`."""

    value: str  # `year`, `person`, `town`, `company`, or else the unit of a number
    statements: Sequence[str]  # from plain to roundabout, the last in two sentences
    questions: Sequence[str]  # likewise


_WORDINGS = yaml.safe_load(Path(__file__).with_name("wordings.yaml").read_text(encoding="utf-8"))
ATTRIBUTES: Mapping[str, Sequence[Attribute]] = {
    kind: tuple(Attribute(**attribute) for attribute in attributes)
    for kind, attributes in _WORDINGS["attributes"].items()
}
"""Kind of entity -> its attributes."""
FILLERS: Sequence[str] = _WORDINGS["fillers"]
ASIDES: Sequence[str] = _WORDINGS["asides"]
_ASIDE_FIELDS = ("person", "other", "company", "town", "year", "crowns", "kilograms")


Names = Mapping[str, Sequence[str]]
"""The words that names of one part are made of: `first`, `family`, `town` and `model` names."""


@lru_cache(maxsize=PARTS)
def names_of(seed: int) -> Names:
    """Return the names that a seed draws from."""
    each = {
        kind: [head + tail for head, tail in product(of["heads"].split(), of["tails"].split())]
        for kind, of in _WORDINGS["names"].items()
    }
    return {kind: part_of(names, seed) for kind, names in each.items()}


FEWEST, MOST = 40, 140  # documents of a case
NAMESAKES = 0.35  # share of entities that have a word of their name from the one asked for
SAME_WORDING = 0.5
"""Share of questions put in the words of the document; the others may be as well, by chance."""
PRONOUNS = 0.55  # share of statements that leave the name out
TYPOS = (0.0, 0.2, 0.4, 0.6)
"""Share of long words that are misspelt, one of these by chance for each question."""
SHORTEST_MISSPELT = 5


def draw_case(rng: np.random.Generator, names: Names) -> Example:
    """Return a question for an attribute of an entity; a document has the answer as it stands."""
    kind = _one(rng, tuple(ATTRIBUTES))
    subject = _name(rng, names, kind)
    attribute = _one(rng, ATTRIBUTES[kind])
    answer = _value(rng, names, attribute.value, but=subject)
    wording = int(rng.integers(len(attribute.statements)))
    statement = attribute.statements[wording].format(s="{s}", v=answer)
    documents = [_document(rng, names, kind, subject, (attribute, statement))]
    taken = {subject}
    for _ in range(int(rng.integers(FEWEST, MOST + 1)) - 1):
        other_kind = _one(rng, tuple(ATTRIBUTES))
        other = _name(rng, names, other_kind)
        if other_kind == kind and rng.random() < NAMESAKES:
            other = _namesake(rng, subject, other)
        if other not in taken:  # no person is described twice, or there would be two answers
            taken.add(other)
            documents.append(_document(rng, names, other_kind, other, None))
    if rng.random() >= SAME_WORDING:
        wording = int(rng.integers(len(attribute.questions)))
    question = attribute.questions[wording].format(n=subject)
    asking: Payload = {
        "question": _misspelt(rng, question, _one(rng, TYPOS)),
        "documents": [documents[i] for i in rng.permutation(len(documents))],
    }
    return Example(input=asking, expected=answer)


def _document(
    rng: np.random.Generator,
    names: Names,
    kind: str,
    name: str,
    answering: tuple[Attribute, str] | None,
) -> str:
    """Return everything about an entity in any order, other matters in between, under its name."""
    pronoun = _one(rng, _WORDINGS["pronouns"][kind])
    full = f"The {name}" if kind == "machine" else name
    sentences: list[str] = []
    for index in rng.permutation(len(ATTRIBUTES[kind])):
        attribute = ATTRIBUTES[kind][index]
        value = _value(rng, names, attribute.value, but=name)
        statement = _one(rng, attribute.statements)
        if answering is not None and attribute is answering[0]:
            statement = answering[1]
        subject = pronoun if sentences and rng.random() < PRONOUNS else full
        sentences.append(statement.format(s=subject, v=value))
        if rng.random() < 0.25:
            sentences.append(_one(rng, FILLERS))
        if rng.random() < 0.25:
            sentences.append(_aside(rng, names, name))
    return f"{full}\n{' '.join(sentences)}"


def _aside(rng: np.random.Generator, names: Names, name: str) -> str:
    aside = _one(rng, ASIDES)
    values = {
        field: _value(rng, names, "person" if field == "other" else field, but=name)
        for field in _ASIDE_FIELDS
        if f"{{{field}}}" in aside
    }
    return aside.format(**values)


def _value(rng: np.random.Generator, names: Names, value: str, *, but: str) -> str:
    if value == "year":
        return str(rng.integers(1610, 1990))
    if value not in ATTRIBUTES:
        return f"{rng.integers(20, 9000)} {value}"
    name = _name(rng, names, value)
    return name if name != but else _value(rng, names, value, but=but)


def _name(rng: np.random.Generator, names: Names, kind: str) -> str:
    if kind == "person":
        return f"{_one(rng, names['first'])} {_one(rng, names['family'])}"
    if kind == "company":
        return f"{_one(rng, names['family'])} {_one(rng, _WORDINGS['endings'])}"
    if kind == "machine":
        return f"{_one(rng, names['model'])} {_one(rng, _WORDINGS['devices'])}"
    return _one(rng, names["town"])


def _namesake(rng: np.random.Generator, subject: str, other: str) -> str:
    """Return another person with one word of the name asked for."""
    words, others = subject.split(), other.split()
    shared = int(rng.integers(len(words)))
    return " ".join(words[i] if i == shared else others[i] for i in range(len(words)))


def _misspelt(rng: np.random.Generator, question: str, share: float) -> str:
    words = question.split(" ")
    return " ".join(
        _typo(rng, word) if len(word) >= SHORTEST_MISSPELT and rng.random() < share else word
        for word in words
    )


def _typo(rng: np.random.Generator, word: str) -> str:
    """Return the word with two letters swapped, one dropped or doubled; the first stays."""
    at = int(rng.integers(1, len(word) - 2))
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return _one(rng, (swapped, word[:at] + word[at + 1 :], word[: at + 1] + word[at:]))


def _one(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    return items[int(rng.integers(len(items)))]


LONGEST_QUESTION = 1_000  # characters
LONGEST_TEXT = 20_000  # characters
MOST_TEXTS: Mapping[str, int] = {"documents": 5_000, "passages": 50_000}  # texts of a request
LARGEST: Mapping[str, int] = {"documents": 1_000_000, "passages": 4_000_000}
"""Characters of all texts together; passages overlap and have titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question and the texts to answer it from."""

    question: str  # with at least one word
    texts: tuple[str, ...]  # documents or passages of them, at least one, each with a word

    def handing_on(self, passages: Sequence[str]) -> Payload:
        """Return the question with the passages, as steps hand it on."""
        return {"question": self.question, "passages": list(passages)}


def checked_request(value: Payload, key: str) -> Request:
    """Return a question with its texts by that key; InvalidInput if one is empty or too large."""
    rule = f"must be a dict of question and {key}"
    if not (isinstance(value, dict) and value.keys() == {"question", key}):
        raise InvalidInput.of("request", rule, _described(value))
    question, texts = value["question"], value[key]
    rule = f"must be a text of 1 to {LONGEST_QUESTION} characters with a word in it"
    if not (
        isinstance(question, str) and len(question) <= LONGEST_QUESTION and has_word(question)
    ):
        raise InvalidInput.of("request.question", rule, _described(question))
    return Request(question=question, texts=_checked_texts(key, texts))


def _checked_texts(key: str, texts: Payload) -> tuple[str, ...]:
    field, rule = f"request.{key}", f"must be a list of 1 to {MOST_TEXTS[key]} texts"
    if not (isinstance(texts, list) and 1 <= len(texts) <= MOST_TEXTS[key]):
        raise InvalidInput.of(field, rule, _described(texts))
    checked = tuple(text for text in texts if isinstance(text, str))
    checks.require(len(checked) == len(texts), field, rule, "something else among them")
    longest, size = max(map(len, checked)), sum(map(len, checked))
    rule = f"must have at most {LONGEST_TEXT} characters each"
    checks.require(longest <= LONGEST_TEXT, field, rule, longest)
    rule = f"must have at most {LARGEST[key]} characters in all"
    checks.require(size <= LARGEST[key], field, rule, size)
    blank = next((i for i, text in enumerate(checked) if not has_word(text)), None)
    checks.require(blank is None, field, "must each have a word", f"none in text {blank}")
    return checked


def _described(value: Payload) -> str:
    size = f" of {len(value)}" if isinstance(value, str | bytes | list | dict) else ""
    return f"{type(value).__name__}{size}"


LONGEST_TITLE = 100  # characters of it that a passage repeats


def chunked(documents: Sequence[str], size: int, *, titled: bool) -> list[str]:
    """Return the passages of `size` sentences, the last of a document shorter.

    Half of a passage is in the next one too (none when it has one sentence), so that what two
    sentences say together is in one passage. A document is a title, a line break and the rest. If
    `titled`, passages start with the title: more to read, but who `she` is stands in it.
    """
    step = max(1, (size + 1) // 2)
    passages = []
    for document in documents:
        title, _, rest = document.partition("\n")
        sentences = sentences_of(rest) or [title]
        starts = range(0, max(1, len(sentences) - size + step), step)
        header = f"{title[:LONGEST_TITLE]}: " if titled and rest else ""
        passages += [header + " ".join(sentences[at : at + size]) for at in starts]
    return passages
