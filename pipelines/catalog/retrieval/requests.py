"""What steps hand on, a question with texts, best first; operator `chunker`.

It is checked on the way into every step; the functions behind trust it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circinus.pipelines import checks
from circinus.pipelines.catalog.retrieval.wording import has_word, sentences_of
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload

LONGEST_QUESTION = 1_000  # characters
LONGEST_TEXT = 20_000  # characters
MOST: Mapping[str, int] = {"documents": 5_000, "passages": 50_000}  # texts of a request
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
    field, rule = f"request.{key}", f"must be a list of 1 to {MOST[key]} texts"
    if not (isinstance(texts, list) and 1 <= len(texts) <= MOST[key]):
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
