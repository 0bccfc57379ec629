"""Language models that complete a chat: a GGUF in memory by llama.cpp, or a model at an endpoint.

The one rule: what is drawn depends on the messages and the `Generation` alone. So a prompt is read
anew at each call, and no part of an earlier one is reused.

llama.cpp runs inside this process. Its server also listens on a port of the loopback interface,
which cannot be left out: whoever does not know a key of this process is turned away there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypedDict, cast

from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.execution.calling import report_lost, report_usage
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.weights import ModelWeights
from circinus.pipelines.model.operators import Operator

if TYPE_CHECKING:
    from xllamacpp import Server

GGUFS: Mapping[str, ModelWeights] = {
    "smollm2-135m": ModelWeights(
        name="smollm2-135m",
        what="SmolLM2-135M-Instruct, 4 bits, GGUF",
        licence="Apache-2.0",
        size_bytes=98_362_432,
        files={"model.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    ),
    "qwen2.5-coder-0.5b": ModelWeights(
        name="qwen2.5-coder-0.5b",
        what="Qwen2.5-Coder-0.5B-Instruct, 4 bits, GGUF",
        licence="Apache-2.0",
        size_bytes=491_400_064,
        files={"model.gguf": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"},
    ),
}
"""That pipelines of the catalogue have for choices."""
CONTEXT = 4096  # tokens of prompt and completion together
_CACHE_BYTES = 2e8  # about what a model of a billion weights takes for a context
_TIMEOUT_S = 600.0


class ChatMessage(TypedDict):
    """One message of a chat."""

    role: str  # `system`, `user` or `assistant`
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How a completion is drawn."""

    most_tokens: int  # of the completion, `>= 1`
    temperature: float = 0.0  # 0: the likeliest token each time
    seed: int = 0  # of what is drawn where the temperature is above 0
    threads: int = 1  # that compute, `>= 1`; of a GGUF
    choices: tuple[str, ...] = ()  # a GGUF completes by one of these; empty: by any text

    def __post_init__(self) -> None:
        checks.at_least("most_tokens", self.most_tokens, 1)
        checks.non_negative("temperature", self.temperature)
        checks.at_least("threads", self.threads, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a model wrote, and the tokens that it read and wrote."""

    text: str
    prompt_tokens: int
    completion_tokens: int


class ModelFailed(CircinusError):
    """A language model is missing, or did not complete a chat."""


ChatModel = Callable[[Sequence[ChatMessage], Generation], Completion]
"""`model(messages, generation) -> completion`."""


def chat_models(
    ggufs: Mapping[str, Path], endpoints: Sequence[ChatEndpoint]
) -> Mapping[str, ChatModel]:
    """Return the models of the catalogue, further GGUF files and hosted ones, by name."""
    return {
        **{name: weights_model(weights) for name, weights in GGUFS.items()},
        **{name: partial(chat, Path(path)) for name, path in ggufs.items()},
        **{endpoint.name: endpoint.chat for endpoint in endpoints},
    }


def weights_model(weights: ModelWeights) -> ChatModel:
    """Return the model whose file is `model.gguf`, which is looked up at each call."""
    return lambda messages, generation: chat(weights.path("model.gguf"), messages, generation)


def calling(operator: Operator, endpoints: Sequence[ChatEndpoint]) -> Operator:
    """Return the operator, declared to call endpoints that its knobs name."""
    calls = tuple(endpoint.name for endpoint in endpoints)
    return replace(operator, spec=replace(operator.spec, calls=calls))


def chat(path: Path, messages: Sequence[ChatMessage], generation: Generation) -> Completion:
    """Return the completion by a GGUF, which stays in memory; ModelFailed if there is none."""
    size = path.stat().st_size if path.is_file() else 0
    if not size:
        raise ModelFailed(f"{path} must be a GGUF file")
    server = MODELS.get(
        ("gguf", path, generation.threads),
        size + _CACHE_BYTES,
        partial(_server, path, generation.threads),
    )
    request = _request(messages, generation) | {"seed": generation.seed, "cache_prompt": False}
    if generation.choices:
        request["grammar"] = "root ::= " + " | ".join(map(json.dumps, generation.choices))
    return _completion(server.handle_chat_completions(request), path.name)


def _server(path: Path, threads: int) -> Server:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.cache_ram_mib = CONTEXT, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 1
    params.api_keys, params.endpoint_slots = [_key()], False
    params.warmup, params.verbosity = False, 0
    try:
        return Server(params)
    except RuntimeError as error:
        raise ModelFailed(f"{path} cannot be loaded as a GGUF") from error


@cache
def _key() -> str:
    return token_hex(16)


def _request(messages: Sequence[ChatMessage], generation: Generation) -> dict[str, Any]:
    return {
        "messages": list(messages),
        "max_tokens": generation.most_tokens,
        "temperature": generation.temperature,
    }


def _completion(response: Mapping[str, Any], name: str) -> Completion:
    """Return what a response has; ModelFailed if it is none."""
    try:
        usage = response["usage"]
        return Completion(
            text=str(response["choices"][0]["message"]["content"] or ""),
            prompt_tokens=int(usage["prompt_tokens"]),
            completion_tokens=int(usage["completion_tokens"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ModelFailed(f"{name} did not complete the chat: {_complaint(response)}") from error


def _complaint(response: object) -> str:
    parts = response.get("error") if isinstance(response, dict) else None
    return str(parts.get("message") if isinstance(parts, dict) else response)[:200]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """A model that an OpenAI-compatible service completes chats by."""

    name: str  # of the endpoint in the infrastructure, and of the knob's value
    url: str  # up to and with `/v1`
    model: str  # what the service calls it
    key_variable: str = ""  # environment variable with the key; empty: the service needs none

    def __post_init__(self) -> None:
        checks.name("endpoint.name", self.name)
        rule = "must begin with http:// or https://"
        checks.require(
            self.url.startswith(("http://", "https://")), "endpoint.url", rule, self.url
        )

    def chat(self, messages: Sequence[ChatMessage], generation: Generation) -> Completion:
        """Return the completion, its usage reported; what the service refuses is raised."""
        import httpx

        request = _request(messages, generation) | {"model": self.model}
        try:
            response = httpx.post(
                f"{self.url}/chat/completions",
                json=request,
                headers=self._headers(),
                timeout=_TIMEOUT_S,
            )
        except httpx.TransportError:
            report_lost(self.name)
            raise
        completion = _completion(_json(response.raise_for_status()), self.name)
        report_usage(
            self.name,
            input_tokens=completion.prompt_tokens,
            output_tokens=completion.completion_tokens,
        )
        return completion

    def _headers(self) -> Mapping[str, str]:
        if not self.key_variable:
            return {}
        key = os.environ.get(self.key_variable)  # noqa: TID251 - operators have no settings
        if not key:
            rule = f"must be set: the endpoint {self.name} needs a key"
            raise InvalidInput.of(self.key_variable, rule, key)
        return {"Authorization": f"Bearer {key}"}


def _json(response: Any) -> Mapping[str, Any]:  # noqa: ANN401 - httpx is imported where it is used
    try:
        return cast("Mapping[str, Any]", response.json())
    except ValueError:
        return {}
