"""What steps hand on: a question with texts, best first.

One rule: it is checked on the way into every step; the functions behind trust it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from pipelines import checks
from pipelines.catalog.retrieval.wording import has_word
from pipelines.errors import InvalidInput
from pipelines.payload import Payload

LONGEST_QUESTION = 1_000
"""Characters."""
LONGEST_TEXT = 20_000
"""Characters."""
MOST = MappingProxyType({"documents": 5_000, "passages": 50_000})
"""Texts of a request."""
LARGEST = MappingProxyType({"documents": 1_000_000, "passages": 4_000_000})
"""Characters of all texts together; passages overlap and have titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question and the texts to answer it from.

    Attributes:
        question: With at least one word.
        texts: Documents or passages of them, at least one, each with a word.
    """

    question: str
    texts: tuple[str, ...]

    def payload(self) -> Payload:
        """Give it as steps hand it on."""
        return {"question": self.question, "passages": list(self.texts)}


def checked_request(value: Payload, key: str) -> Request:
    """Give a question with the texts under that key.

    Raises:
        InvalidInput: If it is no such dict, or the question or the texts are empty or too large.
    """
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
