from __future__ import annotations

from pathlib import Path

import pytest

from circinus.deploy.workers.options import WorkerOptions, parse
from circinus.deploy.workers.shares import Enforcement, Pace
from circinus.deploy.workers.transport import TlsFiles, check_transport, is_loopback, split_address
from circinus.pipelines.errors import InvalidInput

FILES = TlsFiles(certificate=Path("c.pem"), key=Path("k.pem"), authority=Path("a.pem"))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:1", "10.0.0.1:80", "example.org:443"])
def test_plaintext_leaves_this_computer_never(address: str) -> None:
    rule = "address must be a loopback address unless TLS files are given"
    with pytest.raises(InvalidInput, match=rule):
        check_transport(address, None)
    with pytest.raises(InvalidInput, match=rule):
        WorkerOptions(pipeline="p", operators=("a",), tier="t", bind=address)
    check_transport(address, FILES)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.8.8:1", "[::1]:5", "localhost:65535"])
def test_plaintext_may_stay_on_this_computer(address: str) -> None:
    check_transport(address, None)
    assert is_loopback(split_address(address)[0])


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:x", "host:65536"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(InvalidInput, match="address must be host:port"):
        split_address(address)


def test_files_that_are_not_there_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"must name readable PEM files.*k\.pem"):
        FILES.read()


def test_a_worker_serves_something() -> None:
    with pytest.raises(InvalidInput, match="operators must have at least one"):
        WorkerOptions(pipeline="p", operators=(), tier="t")


@pytest.mark.parametrize(
    "options",
    [
        WorkerOptions(pipeline="digits", operators=("a",), tier="cloud"),
        WorkerOptions(
            pipeline="m:a",
            allow_import=True,
            operators=("a", "b"),
            configuration={"a": {"k": 'quote "', "n": 0.1, "yes": True}},
            tier="far-edge",
            pace=Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.15, speed=1 / 3),
            bind="0.0.0.0:50051",
            health="0.0.0.0:50052",
            tls=FILES,
        ),
    ],
)
def test_a_command_line_says_all_of_the_options(options: WorkerOptions) -> None:
    assert parse(options.arguments()) == options


def test_tls_files_go_together() -> None:
    arguments = ["--pipeline", "p", "--operators", "a", "--tier", "t", "--tls-key", "k"]
    with pytest.raises(SystemExit, match="2"):
        parse(arguments)
