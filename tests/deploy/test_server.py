"""Worker processes by themselves, as their command line starts them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from circinus.deploy.local.cgroups import available
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.process import worker_environment
from circinus.deploy.workers.proto import worker_pb2, worker_pb2_grpc
from circinus.deploy.workers.transport import TlsFiles, socket_of
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.model.payload import decode, encode
from tests.deploy.serving import is_alive, launcher, reference
from tests.programs import need

SERVER = [sys.executable, "-m", "circinus.deploy.workers.server"]


def options(name: str, *more: str) -> list[str]:
    given = ["--pipeline", reference(name), "--allow-import", "--operators", name]
    socket = f"unix:{tempfile.mkdtemp(prefix='circinus-')}/s"  # pytest's paths are too long
    return [*given, "--tier", "cloud", "--bind", socket, *more]


@asynccontextmanager
async def worker(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    process = await asyncio.create_subprocess_exec(
        *SERVER, *arguments, stdout=PIPE, stderr=PIPE, env=worker_environment()
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = json.loads(await process.stdout.readline())
        assert line["pid"] == process.pid
        yield process, line["address"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (options("echo", "--bind", "127.0.0.1:0"), "must be a Unix socket, unix:PATH, unless TLS"),
        (options("echo", "--share", "1.5"), "share must be in (0, 1], got 1.5"),
        (options("echo", "--configuration", '{"x": {}}'), "operator must be among echo, got 'x'"),
        (
            [a for a in options("echo") if a != "--allow-import"],
            "pipeline must be a registered pipeline",
        ),
    ],
)
def test_a_worker_that_may_not_run_says_why_and_ends(arguments: list[str], message: str) -> None:
    ended = subprocess.run(
        [*SERVER, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=worker_environment(),
        check=False,
    )
    assert ended.returncode != 0
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_worker_says_that_it_serves_and_what() -> None:
    async def scenario() -> None:
        async with worker(*options("echo")) as (_, address):
            client = WorkerClient(address)
            assert await client.healthy(timeout_s=5.0)
            with pytest.raises(InvalidInput, match="operators must be among echo"):
                await client.run(["moon"], {}, [], timeout_s=5.0)
            with pytest.raises(InvalidInput, match="must be an encoded payload"):
                await client.run(["echo"], {INPUT: b"torn"}, ["echo"], timeout_s=5.0)
            await client.close()
            assert "circinus.worker.v1.Worker" in await reflected(address)

    asyncio.run(scenario())


def test_a_socket_is_its_user_s_alone_whoever_may_enter_the_folder() -> None:
    async def scenario() -> None:
        async with worker(*options("echo")) as (_, address):
            socket = socket_of(address)
            assert socket is not None
            assert stat.S_IMODE(socket.stat().st_mode) & 0o077 == 0

    asyncio.run(scenario())


def test_what_is_too_large_to_be_sent_is_named_with_its_limit() -> None:
    large, limit = encode("x" * 2**17), 2**16

    async def scenario() -> None:
        async with worker(*options("echo", "--message-bytes", str(limit))) as (_, address):
            client, free = WorkerClient(address, None, limit), WorkerClient(address)
            with pytest.raises(InvalidInput, match=r"input must have at most 65536 bytes \(CIRC"):
                await client.run(["echo"], {INPUT: large}, ["echo"], timeout_s=5.0)
            with pytest.raises(OperatorFailed, match="outputs must have at most 65536 bytes"):
                await client.run(["echo"], {"before": large}, ["echo"], timeout_s=5.0)
            with pytest.raises(OperatorFailed, match="larger than max"):
                await free.run(["echo"], {INPUT: large + large}, ["echo"], timeout_s=5.0)
            # Fits on its way there, but not with what is told beside it on the way back.
            call = worker_pb2.RunRequest(operators=["echo"], inputs={INPUT: b""}, wants=["echo"])
            almost = encode("x" * (limit - call.ByteSize() - 14))
            with pytest.raises(OperatorFailed, match=r"echo.*outputs must have at most") as raised:
                await client.run(["echo"], {INPUT: almost}, ["echo"], timeout_s=5.0)
            assert raised.value.operator == "echo"
            await client.close()
            await free.close()

    asyncio.run(scenario())


async def reflected(address: str) -> list[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in stub.ServerReflectionInfo(iter([request])):
            return [service.name for service in answer.list_services_response.service]
    return []


def test_a_call_by_a_client_that_was_closed_has_lost_its_instance() -> None:
    async def scenario() -> None:
        async with worker(*options("echo")) as (_, address):
            client = WorkerClient(address)
            await client.close()  # as another task does when the instance is let go
            with pytest.raises(InstanceLost, match="it was given up"):
                await client.run(["echo"], {INPUT: encode("x")}, ["echo"], timeout_s=5.0)
            assert not await client.healthy(timeout_s=5.0)
            await client.idle()

    asyncio.run(scenario())


def test_a_second_call_waits_for_the_first_and_health_does_not() -> None:
    async def scenario() -> None:
        async with worker(*options("nap")) as (_, address):
            client = WorkerClient(address)
            nap = client.run(["nap"], {INPUT: encode(0.4)}, ["nap"], timeout_s=5.0)
            first = asyncio.create_task(nap)
            await asyncio.sleep(0.1)
            assert await client.healthy(timeout_s=0.2)
            with pytest.raises(DeadlineExceeded):
                await client.settle(timeout_s=0.05)
            assert not first.done()
            await client.settle(timeout_s=5.0)
            assert first.done() or (await asyncio.wait_for(first, 0.2)) is not None
            await client.close()

    asyncio.run(scenario())


def test_a_worker_told_to_end_finishes_the_call_in_hand() -> None:
    async def scenario() -> None:
        async with worker(*options("nap")) as (process, address):
            client = WorkerClient(address)
            nap = client.run(["nap"], {INPUT: encode(0.4)}, ["nap"], timeout_s=5.0)
            call = asyncio.create_task(nap)
            await asyncio.sleep(0.15)
            process.send_signal(signal.SIGTERM)
            assert decode((await call).outputs["nap"]) == 0.4
            assert await asyncio.wait_for(process.wait(), 5.0) == 0
            with pytest.raises(InstanceLost):
                await client.settle(timeout_s=1.0)
            await client.close()

    asyncio.run(scenario())


STARTER = """
import asyncio, json, sys
from pathlib import Path
from tests.deploy.serving import desired, pids_of, plan, serving
from circinus.deploy.local.cgroups import available

async def main():
    wanted = {"q": desired("burn", plan("burn", shares={"cloud": 0.5}, replicas={"cloud": 2}))}
    async with serving(Path(sys.argv[1]), wanted, cgroups=available()) as orchestrator:
        print(json.dumps(pids_of(orchestrator, "q")), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=worker_environment(),
    )
    assert starter.stdout is not None
    pids = json.loads(starter.stdout.readline())
    starter.stdout.close()
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait(timeout=10)

    async def all_gone() -> None:
        async with asyncio.timeout(10):
            while any(is_alive(pid) for pid in pids):
                await asyncio.sleep(0.02)

    asyncio.run(all_gone())
    swept_by_the_next(tmp_path, starter.pid)


def swept_by_the_next(logs: Path, owner: int) -> None:
    place = available()
    if isinstance(place, str):
        return
    left = f"circinus-{owner}-*"
    assert len(list(place.parent.glob(left))) == 2
    launcher(logs, place)
    assert list(place.parent.glob(left)) == []


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two self-signed certificates for this computer: `ours` and `theirs`."""
    need("openssl")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "theirs"):
        make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"]
        host = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        command = [*make.split(), *files, *host]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def tls(folder: Path, name: str, authority: str) -> TlsFiles:
    return TlsFiles(
        certificate=folder / f"{name}.pem",
        key=folder / f"{name}.key",
        authority=folder / f"{authority}.pem",
    )


def test_with_tls_only_who_shows_a_known_certificate_is_served(certificates: Path) -> None:
    files = tls(certificates, "ours", "ours")
    flags = ["--bind", "0.0.0.0:0", "--tls-certificate", str(files.certificate)]
    flags += ["--tls-key", str(files.key), "--tls-authority", str(files.authority)]

    async def scenario() -> None:
        async with worker(*options("echo", *flags)) as (_, address):
            port = address.rpartition(":")[2]
            known = WorkerClient(f"127.0.0.1:{port}", files)
            reply = await known.run(["echo"], {INPUT: encode("x")}, ["echo"], timeout_s=5.0)
            assert decode(reply.outputs["echo"]) == "x"
            strangers = [
                WorkerClient(f"127.0.0.1:{port}", tls(certificates, "theirs", "ours")),
                WorkerClient(f"127.0.0.1:{port}", tls(certificates, "theirs", "theirs")),
            ]
            for stranger in strangers:
                with pytest.raises(InstanceLost):
                    await stranger.run([], {}, [], timeout_s=5.0)
            for client in (known, *strangers):
                await client.close()

    asyncio.run(scenario())


def test_a_certificate_can_name_something_else_than_the_address(certificates: Path) -> None:
    files = tls(certificates, "ours", "ours")
    flags = ["--bind", "127.0.0.2:0", "--tls-certificate", str(files.certificate)]
    flags += ["--tls-key", str(files.key), "--tls-authority", str(files.authority)]

    async def scenario() -> None:
        async with worker(*options("echo", *flags)) as (_, address):
            clients = [  # the certificate is for localhost and 127.0.0.1
                WorkerClient(address, files),
                WorkerClient(address, replace(files, server_name="elsewhere")),
                WorkerClient(address, replace(files, server_name="localhost")),
            ]
            healthy = [await client.healthy(timeout_s=5.0) for client in clients]
            assert healthy == [False, False, True]
            for client in clients:
                await client.close()

    asyncio.run(scenario())


def test_health_is_told_in_the_clear_beside_tls_and_nothing_else_is(certificates: Path) -> None:
    files = tls(certificates, "ours", "ours")
    flags = ["--bind", "127.0.0.1:0", "--tls-certificate", str(files.certificate)]
    flags += ["--tls-key", str(files.key), "--tls-authority", str(files.authority)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        plain = f"127.0.0.1:{free.getsockname()[1]}"

    async def scenario() -> None:
        serves = worker(*options("echo", *flags, "--health", plain))
        async with serves, grpc.aio.insecure_channel(plain) as probe:
            health = health_pb2_grpc.HealthStub(probe)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=5.0)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="Method not found"):
                await worker_pb2_grpc.WorkerStub(probe).Run(worker_pb2.RunRequest())

    asyncio.run(scenario())
