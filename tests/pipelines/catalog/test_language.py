from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from circinus.pipelines.catalog.language import (
    ChatEndpoint,
    ChatMessage,
    Completion,
    Generation,
    ModelFailed,
    chat,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.calling import collected
from tests.chat_service import service
from tests.tiny_gguf import write_tiny_gguf

HELLO: list[ChatMessage] = [{"role": "user", "content": "hello"}]
FIVE = Generation(most_tokens=5)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("xllamacpp")
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.mark.parametrize(
    ("most_tokens", "temperature", "threads", "message"),
    [
        (0, 0.0, 1, "most_tokens must be >= 1, got 0"),
        (1, -0.1, 1, "temperature must be finite and >= 0, got -0.1"),
        (1, 0.0, 0, "threads must be >= 1, got 0"),
    ],
)
def test_what_is_no_way_to_generate_is_refused(
    most_tokens: int, temperature: float, threads: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        Generation(most_tokens=most_tokens, temperature=temperature, threads=threads)


def test_a_file_that_is_no_gguf_is_a_failure_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match=r"missing\.gguf must be a GGUF file"):
        chat(tmp_path / "missing.gguf", HELLO, FIVE)
    pytest.importorskip("xllamacpp")
    (tmp_path / "wrong.gguf").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelFailed, match=r"wrong\.gguf cannot be loaded as a GGUF"):
        chat(tmp_path / "wrong.gguf", HELLO, FIVE)


def test_a_prompt_beyond_the_context_is_a_failure_with_its_length(tiny: Path) -> None:
    long: list[ChatMessage] = [{"role": "user", "content": "no " * 5000}]
    with pytest.raises(ModelFailed, match=r"tiny.gguf did not complete the chat: .*context size"):
        chat(tiny, long, FIVE)


def test_tokens_are_counted_and_no_more_are_written_than_may_be(tiny: Path) -> None:
    completion = chat(tiny, HELLO, FIVE)
    assert completion.prompt_tokens > 5  # the template has some of its own
    assert 1 <= completion.completion_tokens <= 5


def test_a_gguf_with_choices_completes_by_one_of_them(tiny: Path) -> None:
    choices = ("red", "no", 'a "quoted" one')
    generation = Generation(most_tokens=30, choices=choices)
    assert chat(tiny, HELLO, generation).text in choices


def test_a_completion_is_the_same_whatever_was_asked_before(tiny: Path) -> None:
    first = chat(tiny, HELLO, FIVE)
    chat(tiny, [{"role": "user", "content": "hello, and something else"}], FIVE)
    assert chat(tiny, HELLO, FIVE) == first


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("", "http://here/v1", "endpoint.name must start with a letter"),
        ("a", "ftp://here", "endpoint.url must begin with http:// or https://, got 'ftp://here'"),
    ],
)
def test_what_is_no_endpoint_is_refused(name: str, url: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ChatEndpoint(name=name, url=url, model="m")


def test_an_endpoint_without_its_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    endpoint = ChatEndpoint(name="a", url="http://here/v1", model="m", key_variable="SOME_KEY")
    with pytest.raises(InvalidInput, match="SOME_KEY must be set: the endpoint a needs a key"):
        endpoint.chat(HELLO, FIVE)


def test_what_an_endpoint_refuses_is_raised() -> None:
    with service(429, {}) as (url, _), pytest.raises(httpx.HTTPStatusError, match="429"):
        ChatEndpoint(name="a", url=url, model="m").chat(HELLO, FIVE)


@pytest.mark.parametrize("body", [b"no json", {"choices": []}, {"error": {"message": "no"}}])
def test_an_answer_without_a_completion_is_a_failure(body: object) -> None:
    with service(200, body) as (url, _), pytest.raises(ModelFailed, match="a did not complete"):
        ChatEndpoint(name="a", url=url, model="m").chat(HELLO, FIVE)


def test_a_connection_that_is_lost_is_reported_as_used() -> None:
    with service(200, {}) as (url, _):
        pass  # nobody listens there any more
    with collected() as reports, pytest.raises(httpx.ConnectError):
        ChatEndpoint(name="a", url=url, model="m").chat(HELLO, FIVE)
    assert [(report.endpoint, report.used) for report in reports] == [("a", None)]


def test_an_endpoint_completes_and_its_tokens_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    body = {
        "choices": [{"message": {"content": "red"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1},
    }
    with service(200, body) as (url, requests), collected() as reports:
        endpoint = ChatEndpoint(name="a", url=url, model="m", key_variable="SOME_KEY")
        completion = endpoint.chat(HELLO, FIVE)
    assert completion == Completion(text="red", prompt_tokens=7, completion_tokens=1)
    (request,) = requests
    assert request["model"] == "m"
    assert request["max_tokens"] == 5
    assert request["authorization"] == "Bearer secret"
    ((_, used, _),) = reports
    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (7, 1)
