"""Probes get what is wrong in words, and a port that is taken is told at the start."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from circinus.api.operator.running import answering
from circinus.pipelines.errors import InvalidInput


@pytest.fixture
def wrong() -> list[str]:
    return []


@pytest.fixture
def client(wrong: list[str]) -> Iterator[httpx.Client]:
    with (
        answering(0, {"/healthz": list, "/readyz": lambda: wrong}) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as made,
    ):
        yield made


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with (
        pytest.raises(InvalidInput, match=rf"health must be in \[0, 65535\], got {port}"),
        answering(port, {}),
    ):
        pass


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(InvalidInput, match=rf"health must be a port that is free .*{port}"),
            answering(port, {}),
        ):
            pass


def test_what_is_wrong_is_said_and_changes_nothing_for_other_paths(
    client: httpx.Client, wrong: list[str]
) -> None:
    wrong.append("the cluster does not answer")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["wrong"] == ["the cluster does not answer"]
    assert client.get("/healthz").status_code == 200
    wrong.clear()
    assert client.get("/readyz?verbose").json() == {"status": "ok"}


def test_another_path_is_not_there(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert (answer.status_code, answer.json()["paths"]) == (404, ["/healthz", "/readyz"])


def test_the_port_is_free_again_afterwards() -> None:
    with answering(0, {}) as port:
        pass
    with answering(port, {}) as again:
        assert again == port
