"""A server of models that are paid by the call, on this machine: it charges, limits and fails.

It speaks as much of the OpenAI interface as clients need to chat, and reranks as hosted rerankers
do. Its models read: of the facts in a prompt ("The price of tin is 12.") they find the one that is
asked for ("What is the price of tin?"), as often as their skill says. All that it draws comes from
its seed and the request, so equal requests are answered alike, unless a temperature is asked for.

    python -m tests.calls.server --port 8099
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from circinus.pipelines.model.endpoints import CallPrice, RateLimits, Usage

_FACT = re.compile(r"The ([\w ]+?) of ([\w ]+?) is ([\w.]+?)\.(?=\s|$)")
_QUESTION = re.compile(r"What is the ([\w ]+?) of ([\w ]+?)\?")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as the server has it."""

    price: CallPrice
    skill: float = 1.0  # how often it finds what is there, in [0, 1]
    median_s: float = 0.02  # of the seconds of a call, `> 0`
    spread: float = 0.3  # standard deviation of their logarithm, `>= 0`
    limits: RateLimits = field(default_factory=RateLimits)
    failing: float = 0.0  # part of the calls that end with an error, half of them charged
    slow: float = 0.0  # part that takes twenty times as long
    words: int = 8  # tokens of an answer at most, `>= 1`


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One call as the server saw it; what was refused is not charged."""

    at: float  # seconds since 1970, when it was let in
    until: float  # when it was answered
    model: str
    status: int  # of HTTP; 0: the connection was dropped after it was charged
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    usd: float

    @property
    def used(self) -> Usage:
        """What it used, its dollars included."""
        return Usage(1.0, self.input_tokens, self.cached_tokens, self.output_tokens, self.usd)


def tokens_of(text: str) -> int:
    """Return how many tokens a text is: words and marks."""
    return len(_TOKEN.findall(text))


class ModelServer:
    """Serves models until it is closed; a context manager."""

    def __init__(self, models: Mapping[str, Model], *, seed: int = 0, port: int = 0) -> None:
        self.models = dict(models)
        self.seed = seed
        self.calls: list[Charge] = []  # all that was let in, in the order of its answers
        self.refused = 0  # calls over a limit
        self._lock = threading.Lock()
        self._under_way: dict[str, list[tuple[float, int]]] = {name: [] for name in models}
        self._let_in: dict[str, list[tuple[float, int]]] = {name: [] for name in models}
        self._seen: set[tuple[str, str]] = set()
        self._draws = 0
        handler = type("Handler", (_Handler,), {"models": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it is, as clients of the OpenAI interface want it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def charged_usd(self) -> float:
        """Dollars charged so far."""
        with self._lock:
            return sum(call.usd for call in self.calls)

    def most_in_a_window(self, model: str) -> tuple[int, int]:
        """Return the most calls, and the most tokens, that it let in within any 60 s."""
        with self._lock:
            let_in = sorted(self._let_in[model])
        most_calls = most_tokens = first = tokens = 0
        for i, (at, size) in enumerate(let_in):
            tokens += size
            while let_in[first][0] <= at - _WINDOW_S:
                tokens -= let_in[first][1]
                first += 1
            most_calls, most_tokens = max(most_calls, i - first + 1), max(most_tokens, tokens)
        return most_calls, most_tokens

    def answer(self, path: str, asked: Mapping[str, Any]) -> tuple[int, dict[str, Any], float]:
        """Return status, body and seconds of Retry-After; status 0: drop the connection."""
        name = str(asked.get("model"))
        if name not in self.models:
            return 404, {"error": {"message": f"no model {name}"}}, 0.0
        model, text = self.models[name], _text(path, asked)
        rng, size = self._rng(name, text, asked), tokens_of(text)
        at = time.time()
        wait_s = self._let(name, model, at, size)
        if wait_s > 0:
            return 429, {"error": {"message": "rate limit reached"}}, wait_s
        try:
            took_s = model.median_s * float(np.exp(model.spread * rng.standard_normal()))
            took_s *= 20 if rng.random() < model.slow else 1
            time.sleep(took_s)
            fails, charged = rng.random() < model.failing, rng.random() < 0.5
            if fails and not charged:
                self._note(name, at, 500, (0, 0, 0), model)
                return 500, {"error": {"message": "the model failed"}}, 0.0
            body, counts = self._body(path, asked, model, rng)
            self._note(name, at, 0 if fails else 200, counts, model)
            return (0 if fails else 200), body, 0.0
        finally:
            with self._lock:
                self._under_way[name].remove((at, size))

    def _rng(self, name: str, text: str, asked: Mapping[str, Any]) -> np.random.Generator:
        with self._lock:
            self._draws += 1
            draw = self._draws if asked.get("temperature") else 0
        key = f"{self.seed} {name} {text} {draw}".encode()
        digest = blake2b(key, digest_size=8).digest()
        return np.random.default_rng(int.from_bytes(digest, "big"))

    def _let(self, name: str, model: Model, at: float, size: int) -> float:
        """Let a call in, or give the seconds after which it may be."""
        limits = model.limits
        with self._lock:
            recent = [one for one in self._let_in[name] if one[0] > at - _WINDOW_S]
            if len(self._under_way[name]) >= (limits.concurrent or np.inf):
                wait_s = model.median_s
            elif len(recent) >= (limits.requests_per_minute or np.inf):
                wait_s = recent[0][0] + _WINDOW_S - at
            elif sum(tokens for _, tokens in recent) + size > (limits.tokens_per_minute or np.inf):
                wait_s = (recent or [(at, 0)])[0][0] + _WINDOW_S - at
            else:
                self._let_in[name].append((at, size + model.words))
                self._under_way[name].append((at, size))
                return 0.0
            self.refused += 1
            return max(wait_s, 0.001)

    def _body(
        self, path: str, asked: Mapping[str, Any], model: Model, rng: np.random.Generator
    ) -> tuple[dict[str, Any], tuple[int, int, int]]:
        name = str(asked["model"])
        if path.endswith("/rerank"):
            order = _reranked(asked, model, rng)
            return {"results": order}, (tokens_of(_text(path, asked)), 0, 0)
        messages = [str(message["content"]) for message in asked["messages"]]
        answer = _read("\n".join(messages), model, rng)
        read, written = sum(map(tokens_of, messages)), max(tokens_of(answer), 1)
        with self._lock:
            known = len(messages) > 1 and (name, messages[0]) in self._seen
            self._seen.add((name, messages[0]))
        cached = tokens_of(messages[0]) if known else 0
        usage = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        body = {
            "id": "chat",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": name,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": answer},
                    "finish_reason": "stop",
                }
            ],
            "usage": usage,
        }
        return body, (read, cached, written)

    def _note(
        self, name: str, at: float, status: int, counts: tuple[int, int, int], model: Model
    ) -> None:
        until, (read, cached, written) = time.time(), counts
        used = Usage(float(status != 500), read, cached, written)
        charge = Charge(
            at=at,
            until=until,
            model=name,
            status=status,
            input_tokens=read,
            cached_tokens=cached,
            output_tokens=written,
            usd=model.price.usd(used, until - at if status != 500 else 0.0),
        )
        with self._lock:
            self.calls.append(charge)


def _text(path: str, asked: Mapping[str, Any]) -> str:
    if path.endswith("/rerank"):
        return "\n".join([str(asked["query"]), *map(str, asked["documents"])])
    return "\n".join(str(message["content"]) for message in asked["messages"])


def _read(prompt: str, model: Model, rng: np.random.Generator) -> str:
    """Return the value asked for, if it is in the prompt and the model is able to see it."""
    questions = _QUESTION.findall(prompt)
    facts = {(what, of): value for what, of, value in _FACT.findall(prompt)}
    found = facts.get(questions[-1]) if questions else None
    if found is None or rng.random() >= model.skill:
        return "I do not know"
    return str(found)


def _reranked(
    asked: Mapping[str, Any], model: Model, rng: np.random.Generator
) -> list[dict[str, Any]]:
    wanted = set(_TOKEN.findall(str(asked["query"]).lower()))
    documents: Sequence[str] = asked["documents"]
    scores = []
    for document in documents:
        sentences = [set(_TOKEN.findall(each)) for each in document.lower().split(". ")]
        best = max(len(wanted & words) / len(wanted | words) for words in sentences)
        scores.append(best + (1 - model.skill) * rng.random())
    order = np.argsort(-np.array(scores), kind="stable")[: asked.get("top_n") or None]
    return [{"index": int(i), "relevance_score": float(scores[i])} for i in order]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class _Handler(BaseHTTPRequestHandler):
    models: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is two writes, and would wait for the client's word
    wbufsize = 2**16

    def do_GET(self) -> None:
        server = self.models
        if self.path.rstrip("/").endswith("/models"):
            return self._send(200, {"data": [{"id": name} for name in server.models]})
        told = {"usd": server.charged_usd, "calls": [asdict(call) for call in server.calls]}
        return self._send(200, told)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body, wait_s = self.models.answer(self.path, asked)
        if status == 0:
            self.close_connection = True
            return
        self._send(status, body, {"Retry-After": f"{wait_s:.3f}"} if wait_s else {})

    def _send(
        self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(body).encode()
        with contextlib.suppress(OSError):  # nobody waits any more
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def three_models() -> dict[str, Model]:
    """Return three readers of unlike price and skill, and a reranker."""
    return {
        "reader-small": Model(
            price=CallPrice(input_usd_per_million=0.15, output_usd_per_million=0.6),
            skill=0.7,
            median_s=0.015,
        ),
        "reader-medium": Model(
            price=CallPrice(input_usd_per_million=1.0, output_usd_per_million=4.0),
            skill=0.88,
            median_s=0.03,
        ),
        "reader-large": Model(
            price=CallPrice(
                input_usd_per_million=5.0,
                cached_usd_per_million=0.5,
                output_usd_per_million=20.0,
            ),
            skill=0.98,
            median_s=0.06,
        ),
        "reranker": Model(price=CallPrice(call_usd=0.0001), skill=0.9, median_s=0.01),
    }


@contextlib.contextmanager
def serving_models(
    models: Mapping[str, Model] | None = None, *, seed: int = 0
) -> Iterator[ModelServer]:
    """Return a server of models; those of `three_models` where none are named."""
    with ModelServer(models or three_models(), seed=seed) as server:
        yield server


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve models that are paid by the call.")
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.stdout.write(ModelServer(three_models(), seed=given.seed, port=given.port).url + "\n")
    sys.stdout.flush()
    threading.Event().wait()
