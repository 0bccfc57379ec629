"""Answering questions from notes: hosted readers of three prices, or one on a rented machine.

    chunker -> retriever -> reranker -> reader

The chunker and the retriever are plain code. The reranker is left out or called; the reader is
called (`reader-small`, `reader-medium`, `reader-large`) or runs on a rented machine (`rented`).
Which is best depends on the budget of an answer and the rate of questions: Circinus computes it.

Any server with the OpenAI interface can be called: at `ANSWERS_URL`, with the key
`OPENAI_API_KEY`. `report_usage` reports a call's usage; the infrastructure has the prices.
`make demo-calls` plans and serves this against a server of its own.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import httpx
import numpy as np
import numpy.typing as npt

from circinus import (
    CallRetries,
    Dataset,
    Example,
    Knob,
    Operator,
    OperatorSpec,
    Payload,
    Pipeline,
    report_usage,
)

Settings = Mapping[str, str | int | float | bool]
READERS = ("reader-small", "reader-medium", "reader-large")
RENTED = "rented"
_METALS = (
    "tin",
    "zinc",
    "lead",
    "copper",
    "nickel",
    "cobalt",
    "silver",
    "gold",
    "chromium",
    "iron",
)
_KINDS = ("", " ore", " wire", " sheet")
_FIGURES = ("price", "stock", "weight", "density", "grade")
_WORD = re.compile(r"\w+")
_FACT = re.compile(r"The (\w+) of ([\w ]+) is (\w+)")
_BUCKETS, _LAYERS = 24, 400
_LAYER = np.linalg.qr(np.random.default_rng(0).standard_normal((_BUCKETS, _BUCKETS)))[0]
"""A layer of the rented reader: orthogonal, so similar inputs stay similar; slow."""


@lru_cache(maxsize=1)
def _client() -> httpx.Client:
    key = os.environ.get("OPENAI_API_KEY", "none")
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=os.environ["ANSWERS_URL"], headers=headers, timeout=30)


def _post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = _client().post(path, json=body)
    answer.raise_for_status()
    return cast("dict[str, Any]", answer.json())


def chunked(inputs: Payload, knobs: Settings) -> Payload:
    """Return the question with the notes in pieces of so many sentences."""
    request = cast("dict[str, Any]", inputs)
    sentences = [each for each in request["notes"].split("\n") if each]
    size = int(knobs["sentences"])
    pieces = [" ".join(sentences[i : i + size]) for i in range(0, len(sentences), size)]
    return {"question": request["question"], "pieces": cast("list[Payload]", pieces)}


def retrieved(inputs: Payload, knobs: Settings) -> Payload:
    """Return the pieces that share most words with the question, the best first."""
    request = cast("dict[str, Any]", inputs)
    wanted = _words(request["question"])
    shared = [len(wanted & _words(piece)) / len(_words(piece)) for piece in request["pieces"]]
    best = np.argsort(-np.array(shared), kind="stable")[: int(knobs["pieces"])]
    return {
        "question": request["question"],
        "pieces": [request["pieces"][i] for i in best.tolist()],
    }


def reranked(inputs: Payload, knobs: Settings) -> Payload:
    """Return the half that a hosted reranker puts first, or all of it."""
    request = cast("dict[str, Any]", inputs)
    if knobs["model"] == "none":
        return inputs
    count = max(len(request["pieces"]) // 2, 1)
    body = {"model": "reranker", "query": request["question"], "documents": request["pieces"]}
    order = _post("rerank", {**body, "top_n": count})["results"]
    report_usage("reranker")
    pieces = [request["pieces"][each["index"]] for each in order]
    return {"question": request["question"], "pieces": pieces}


def read(inputs: Payload, knobs: Settings) -> Payload:
    """Return the answer of a hosted reader, or of the one that is rented."""
    request = cast("dict[str, Any]", inputs)
    model = str(knobs["model"])
    if model == RENTED:
        return _read_here(request["question"], request["pieces"])
    messages = [
        {"role": "system", "content": "Answer with the one word that the notes give."},
        {"role": "user", "content": "\n".join([*request["pieces"], request["question"]])},
    ]
    answer = _post("chat/completions", {"model": model, "messages": messages, "max_tokens": 8})
    used = answer["usage"]
    report_usage(
        model,
        input_tokens=used["prompt_tokens"],
        cached_tokens=used.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        output_tokens=used["completion_tokens"],
    )
    return cast("str", answer["choices"][0]["message"]["content"])


def _read_here(question: str, pieces: Sequence[str]) -> str:
    """Return the figure of the sentence that is most like the question, by its own estimate.

    Words are numbers below `_BUCKETS` to it, as in any small model: some are alike.
    """
    wanted, best, answer = _hashed(_words(question)), -1.0, "I do not know"
    for figure, of, value in _FACT.findall(" ".join(pieces)):
        likeness = float(wanted @ _hashed({figure, *of.split()}))
        if likeness > best:
            best, answer = likeness, value
    return answer


def _hashed(words: set[str]) -> npt.NDArray[np.float64]:
    vector = np.zeros(_BUCKETS)
    for word in words:
        vector[zlib.crc32(word.encode()) % _BUCKETS] += 1
    for _ in range(_LAYERS):
        vector = _LAYER @ vector
    return vector / np.linalg.norm(vector)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower())) - {"what", "is", "the", "of"}


def examples(count: int, seed: int) -> Dataset:
    """Return questions, each with notes of its own that hold the answer somewhere."""
    rng = np.random.default_rng(seed)
    return Dataset(name="questions", examples=tuple(_example(rng) for _ in range(count)))


def _example(rng: np.random.Generator) -> Example:
    things = [metal + kind for metal in _METALS for kind in _KINDS]
    chosen = rng.choice(things, 12, replace=False).tolist()
    facts = {(figure, of): str(rng.integers(10, 99)) for of in chosen for figure in _FIGURES}
    order = list(facts)
    rng.shuffle(order)
    notes = "\n".join(f"The {figure} of {of} is {facts[figure, of]}." for figure, of in order)
    figure, of = order[int(rng.integers(len(order)))]
    question = f"What is the {figure} of {of}?"
    return Example(input={"notes": notes, "question": question}, expected=facts[figure, of])


def is_right(output: Payload, expected: Payload) -> float:
    """Return 1.0 where the answer is that of the notes."""
    return float(str(output).strip() == expected)


pipeline = Pipeline(
    name="answers",
    metric="part of the questions answered rightly",
    operators=(
        Operator(
            spec=OperatorSpec(name="chunker", knobs=(Knob(name="sentences", values=(2, 4, 8)),)),
            run=chunked,
        ),
        Operator(
            spec=OperatorSpec(
                name="retriever",
                after=("chunker",),
                knobs=(Knob(name="pieces", values=(2, 4, 8)),),
            ),
            run=retrieved,
        ),
        Operator(
            spec=OperatorSpec(
                name="reranker",
                after=("retriever",),
                knobs=(Knob(name="model", values=("none", "reranker")),),
                calls=("reranker",),
            ),
            run=reranked,
            retries=CallRetries(attempts=4, first_wait_s=0.2),
        ),
        Operator(
            spec=OperatorSpec(
                name="reader",
                after=("reranker",),
                knobs=(Knob(name="model", values=(*READERS, RENTED)),),
                calls=READERS,
            ),
            run=read,
            retries=CallRetries(attempts=4, first_wait_s=0.2),
        ),
    ),
    score=is_right,
    examples=examples,
)
