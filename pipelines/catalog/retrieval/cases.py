"""The workload: documents about invented entities, a question about one of them, its answer.

Names are drawn from the part of the material that the seed owns: seeds that differ modulo 3 have
no name in common. A name is a head and a tail, so that many are alike and a retriever has to tell
`Ashley` from `Ashby`; the number of tails is no multiple of 3: each part has all heads and tails.
Sentences are shared by all parts: they are the language, and a part with wordings of its own
would be a harder or an easier world. What makes a case hard is its number of documents, namesakes
of the entity, roundabout wording and misspelt words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from circinus.pipelines.catalog.material import PARTS, Item, part_of
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
    asked = _name(rng, names, kind)
    attribute = _one(rng, ATTRIBUTES[kind])
    answer = _value(rng, names, attribute.value, but=asked)
    wording = int(rng.integers(len(attribute.statements)))
    statement = attribute.statements[wording].format(s="{s}", v=answer)
    documents = [_document(rng, names, kind, asked, (attribute, statement))]
    taken = {asked}
    for _ in range(int(rng.integers(FEWEST, MOST + 1)) - 1):
        other_kind = _one(rng, tuple(ATTRIBUTES))
        other = _name(rng, names, other_kind)
        if other_kind == kind and rng.random() < NAMESAKES:
            other = _namesake(rng, asked, other)
        if other not in taken:  # nobody is described twice, or there would be two answers
            taken.add(other)
            documents.append(_document(rng, names, other_kind, other, None))
    if rng.random() >= SAME_WORDING:
        wording = int(rng.integers(len(attribute.questions)))
    question = attribute.questions[wording].format(n=asked)
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
    told: tuple[Attribute, str] | None,
) -> str:
    """Everything about an entity in any order, other matters in between, under its name."""
    pronoun = _one(rng, _WORDINGS["pronouns"][kind])
    full = f"The {name}" if kind == "machine" else name
    sentences: list[str] = []
    for index in rng.permutation(len(ATTRIBUTES[kind])):
        attribute = ATTRIBUTES[kind][index]
        value = _value(rng, names, attribute.value, but=name)
        statement = _one(rng, attribute.statements)
        if told is not None and attribute is told[0]:
            statement = told[1]
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


def _namesake(rng: np.random.Generator, asked: str, other: str) -> str:
    """Somebody else with one word of the name asked for."""
    words, others = asked.split(), other.split()
    kept = int(rng.integers(len(words)))
    return " ".join(words[i] if i == kept else others[i] for i in range(len(words)))


def _misspelt(rng: np.random.Generator, question: str, share: float) -> str:
    words = question.split(" ")
    return " ".join(
        _typo(rng, word) if len(word) >= SHORTEST_MISSPELT and rng.random() < share else word
        for word in words
    )


def _typo(rng: np.random.Generator, word: str) -> str:
    """The word with two letters swapped, one left out or one doubled; its first letter stays."""
    at = int(rng.integers(1, len(word) - 2))
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return _one(rng, (swapped, word[:at] + word[at + 1 :], word[: at + 1] + word[at:]))


def _one(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    return items[int(rng.integers(len(items)))]
