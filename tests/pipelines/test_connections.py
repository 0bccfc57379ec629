"""What operators connect to without having declared it: refused, noted or logged."""

from __future__ import annotations

import asyncio
import logging
import selectors
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import aiohttp
import httpx
import pytest
import requests

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution import connections
from circinus.pipelines.execution.connections import Address, Watch, measured
from circinus.pipelines.execution.pipeline import run_operator, score_by
from circinus.pipelines.io.price_list import is_provider, provider_of
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

ANYWHERE = ("127.0.0.1", 0)


class Listener:
    """A port that notices who connects."""

    def __init__(self) -> None:
        self._socket = socket.create_server(ANYWHERE)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/v1"

    @property
    def was_reached(self) -> bool:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._socket, selectors.EVENT_READ)
            return bool(waiting.select(0))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Listen where a client of hosted models is told to call one."""
    listener = Listener()
    monkeypatch.setenv("OPENAI_BASE_URL", listener.url)
    yield listener
    listener.close()


@pytest.fixture
def other() -> Iterator[Listener]:
    """Listen where nobody knows of a model."""
    listener = Listener()
    yield listener
    listener.close()


def run(work: Callable[[], object], **declared: bool | tuple[str, ...]) -> None:
    spec = OperatorSpec(name="asks", **declared)  # type: ignore[arg-type]  # calls or network
    operator = Operator(spec=spec, run=lambda inputs, knobs: (work(), None)[1])
    run_operator(operator, None, Configuration(()))


def touch(listener: Listener) -> None:
    socket.create_connection(("127.0.0.1", listener.port)).close()


async def _awaited(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.post(url, timeout=0.2)


async def _by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(0.2)) as session:
        await session.post(url)


CLIENTS: dict[str, Callable[[str], object]] = {
    "httpx": partial(httpx.post, timeout=0.2, trust_env=False),
    "requests": partial(requests.post, timeout=0.2),
    "urllib": partial(urllib.request.urlopen, timeout=0.2),
    "httpx, awaited": lambda url: asyncio.run(_awaited(url)),
    "aiohttp": lambda url: asyncio.run(_by_aiohttp(url)),
    "a name of the loopback": lambda url: httpx.post(url.replace("127.0.0.1", "localhost")),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_model_that_is_not_declared_is_refused_before_anything_connects(
    client: Callable[[str], object], model: Listener
) -> None:
    told = rf"^cannot be planned: operator asks\.calls must name .*OPENAI_BASE_URL.*:{model.port}"
    with pytest.raises(OperatorFailed) as raised:
        run(lambda: client(model.url))

    assert raised.match("declare calls and tell what they use")
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(raised.value.cause)
    assert not model.was_reached


def test_a_provider_is_refused_before_its_name_is_looked_up() -> None:
    with pytest.raises(OperatorFailed, match=r"models of anthropic.*got 'api\.anthropic\.com'"):
        run(lambda: socket.getaddrinfo("api.anthropic.com", 443))


def test_an_operator_that_goes_on_with_something_else_is_refused_all_the_same(
    model: Listener,
) -> None:
    def asks() -> None:
        with suppress(BaseException):
            touch(model)

    with pytest.raises(OperatorFailed, match=r"operator asks\.calls must name"):
        run(asks)


@pytest.mark.parametrize("declared", [{"network": True}, {"calls": ("small",)}])
def test_what_is_declared_connects_and_is_not_noted(
    declared: dict[str, bool | tuple[str, ...]], model: Listener
) -> None:
    with measured() as hosts:
        run(partial(touch, model), **declared)

    assert model.was_reached
    assert not hosts


def test_calls_under_other_settings_declare_nothing(model: Listener) -> None:
    knob = Knob(name="model", values=("small", "local"))
    spec = OperatorSpec(name="asks", knobs=(knob,), calls=("small",))

    def asks(inputs: Payload, knobs: Settings) -> Payload:
        touch(model)
        return None

    operator = Operator(spec=spec, run=asks)
    run_operator(operator, None, Configuration((("asks", "model", "small"),)))
    with pytest.raises(OperatorFailed, match="must name what it calls"):
        run_operator(operator, None, Configuration((("asks", "model", "local"),)))


def test_the_model_of_a_chain_is_known_to_its_other_operators(
    other: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_models", {})
    connections.add_model(other.url, "small")

    with pytest.raises(OperatorFailed, match="where small is called"):
        run(lambda: touch(other))


def test_anything_else_is_noted_once_where_it_is_measured(other: Listener) -> None:
    def touch_often() -> None:
        for _ in range(3):
            touch(other)

    with measured() as hosts:
        run(touch_often)

    assert list(hosts) == [f"localhost:{other.port}"]
    assert other.was_reached


def test_a_name_that_was_looked_up_is_not_noted_by_its_number_again() -> None:
    def asks() -> None:
        with suppress(OSError):
            socket.getaddrinfo("nowhere.invalid", 80)
        with socket.socket() as sock, suppress(OSError):
            sock.settimeout(0.01)
            sock.connect(("192.0.2.1", 80))

    with measured() as hosts:
        run(asks)
    assert list(hosts) == ["nowhere.invalid"]


def test_anything_else_is_logged_once_where_it_serves(
    other: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            run(lambda: touch(other))

    said = f"undeclared_connection operator=asks to=localhost:{other.port}"
    assert [record.getMessage() for record in caplog.records] == [said]


def test_sockets_of_this_machine_and_datagrams_are_no_connections() -> None:
    def asks() -> None:
        here, there = socket.socketpair()
        here.close()
        there.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", 9))

    with measured() as hosts:
        run(asks)
    assert not hosts


def test_threads_that_no_operator_started_may_connect_while_one_runs(model: Listener) -> None:
    begin, done = threading.Event(), threading.Event()

    def runtime() -> None:
        begin.wait()
        touch(model)
        done.set()

    thread = threading.Thread(target=runtime)
    thread.start()

    def waits() -> None:
        begin.set()
        done.wait(5)

    run(waits)
    thread.join()

    assert model.was_reached


def test_any_thread_of_a_process_that_runs_operators_alone_works_for_one_that_runs(
    model: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_operators_alone", threading.Event())
    connections.runs_operators_alone()
    with ThreadPoolExecutor(1) as threads:
        run(lambda: threads.submit(int).result(), calls=("small",))
        with pytest.raises(OperatorFailed, match="must name what it calls"):
            run(lambda: threads.submit(touch, model).result())
    assert not model.was_reached


def test_a_metric_that_calls_a_model_is_refused(model: Listener) -> None:
    def score(output: object, expected: object) -> float:
        touch(model)
        return 1.0

    with pytest.raises(OperatorFailed, match=r"cannot be planned: operator score\.calls must"):
        score_by(score, None, None)
    assert score_by(score, None, None, declared=True) == 1.0


def test_what_an_operator_raised_is_raised_where_it_was_not_refused() -> None:
    with pytest.raises(ZeroDivisionError), Watch("asks", declared=False):
        raise ZeroDivisionError


def test_a_refusal_is_no_fault_of_the_input(model: Listener) -> None:
    with pytest.raises(OperatorFailed) as raised:
        run(lambda: touch(model))

    assert raised.value.violations == ()
    assert isinstance(raised.value.__cause__, InvalidInput)


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("mine.openai.azure.com", "azure"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "aws"),
        ("api.cloudflare.com", "cloudflare"),  # its pattern goes on with a path
        ("s3.amazonaws.com", None),
        ("huggingface.co", None),
        ("pypi.org", None),
    ],
)
def test_providers_are_known_by_their_hosts(host: str, provider: str | None) -> None:
    assert provider_of(host) == provider


@pytest.mark.parametrize(
    ("word", "known"), [("OPENAI", True), ("XAI", True), ("AZURE", True), ("QDRANT", False)]
)
def test_providers_are_known_by_their_environment_variables(word: str, known: bool) -> None:
    assert is_provider(word) == known


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000/v1", "localhost:8000"),
        ("http://[::1]:8000", "localhost:8000"),
        ("https://API.OpenAI.com", "api.openai.com"),
        ("https://10.0.0.7:9000/x", "10.0.0.7:9000"),
    ],
)
def test_an_address_is_shown_by_host_and_port(url: str, shown: str) -> None:
    assert str(Address.of_url(url)) == shown


@pytest.mark.parametrize("url", ["", "no url", "http://[::1", "http://h:x"])
def test_what_is_no_address_of_a_service_is_none(url: str) -> None:
    assert Address.of_url(url) is None
