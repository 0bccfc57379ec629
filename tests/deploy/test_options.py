from __future__ import annotations

from pathlib import Path

import pytest

from circinus.deploy.workers.options import WorkerOptions, parse
from circinus.deploy.workers.shares import Enforcement, Pace
from circinus.deploy.workers.transport import (
    TlsFiles,
    address_of,
    check_transport,
    socket_of,
    split_address,
)
from circinus.pipelines.errors import InvalidInput

FILES = TlsFiles(certificate=Path("c.pem"), key=Path("k.pem"), authority=Path("a.pem"))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:1", "127.0.0.1:0", "localhost:443"])
def test_without_tls_there_is_no_port(address: str) -> None:
    rule = "address must be a Unix socket, unix:PATH, unless TLS files are given"
    with pytest.raises(InvalidInput, match=rule):
        check_transport(address, None)
    with pytest.raises(InvalidInput, match=rule):
        WorkerOptions(pipeline="p", operators=("a",), tier="t", bind=address)
    check_transport(address, FILES)


def test_a_socket_needs_no_tls_and_its_path_is_as_short_as_the_system_wants() -> None:
    longest = Path("/" + "s" * 106)
    check_transport(address_of(longest), None)
    assert socket_of(address_of(longest)) == longest
    assert socket_of("127.0.0.1:80") is None
    with pytest.raises(InvalidInput, match="address must be the path of a socket, of at most 107"):
        check_transport(f"unix:{longest}s", None)


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:x", "host:65536"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(InvalidInput, match="address must be host:port"):
        split_address(address)


def test_files_that_are_not_there_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"must name readable PEM files.*k\.pem"):
        FILES.read()


def test_a_worker_serves_something() -> None:
    with pytest.raises(InvalidInput, match="operators must have at least one"):
        WorkerOptions(pipeline="p", operators=(), tier="t", bind="unix:/s")


@pytest.mark.parametrize(
    "options",
    [
        WorkerOptions(pipeline="digits", operators=("a",), tier="cloud", bind="unix:/a/s"),
        WorkerOptions(
            pipeline="m:a",
            allow_import=True,
            operators=("a", "b"),
            configuration={"a": {"k": 'quote "', "n": 0.1, "yes": True}},
            tier="far-edge",
            pace=Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.15, speed=1 / 3),
            bind="0.0.0.0:50051",
            health="0.0.0.0:50052",
            message_bytes=2**20,
            tls=FILES,
        ),
    ],
)
def test_a_command_line_says_all_of_the_options(options: WorkerOptions) -> None:
    assert parse(options.arguments()) == options


def test_tls_files_go_together() -> None:
    arguments = ["--pipeline", "p", "--operators", "a", "--tier", "t", "--bind", "unix:/s"]
    arguments += ["--tls-key", "k"]
    with pytest.raises(SystemExit, match="2"):
        parse(arguments)
