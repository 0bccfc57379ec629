"""Certificates of workers and of who calls them: for one role, and replaced while they serve."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from circinus.deploy.kubernetes.credentials import Pair, Role, authority, lasts, signed
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.transport import TlsFiles, files_in
from circinus.pipelines.model.payload import decode, encode
from tests.deploy.test_server import options, worker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def signers() -> tuple[Pair, Pair]:
    """Two authorities."""
    return authority(), authority()


def put(folder: Path, role: Role, by: Pair) -> TlsFiles:
    """Let a folder have a new certificate, replaced as a whole, as a mounted Secret is."""
    pair = signed(role, by, 1)
    made = folder.with_name(f"{folder.name}-{next(_numbers)}")
    made.mkdir()
    for name, content in (
        ("tls.crt", pair.certificate),
        ("tls.key", pair.key),
        ("ca.crt", by.certificate),
    ):
        (made / name).write_bytes(content)
    link = made.with_suffix(".link")
    link.symlink_to(made)
    link.replace(folder)
    return files_in(folder)


def flags(files: TlsFiles) -> list[str]:
    given = ["--bind", "127.0.0.1:0", "--tls-certificate", str(files.certificate)]
    return [*given, "--tls-key", str(files.key), "--tls-authority", str(files.authority)]


async def asked(client: WorkerClient, operator: str = "echo", value: float = 0.0) -> float:
    """Return what a worker answers."""
    sent = {INPUT: encode(value)}
    reply = await client.run([operator], sent, [operator], timeout_s=5.0)
    answer = decode(reply.outputs[operator])
    assert isinstance(answer, float)
    return answer


def test_a_worker_cannot_call_another_and_the_service_cannot_be_one(
    tmp_path: Path, signers: tuple[Pair, Pair]
) -> None:
    ours, _ = signers
    workers = put(tmp_path / "workers", Role.WORKERS, ours)
    service = put(tmp_path / "service", Role.SERVICE, ours)

    async def scenario() -> None:
        async with worker(*options("echo", *flags(workers))) as (_, address):
            service_calls, worker_calls = (
                WorkerClient(address, service),
                WorkerClient(address, workers),
            )
            assert await asked(service_calls) == 0.0
            with pytest.raises(InstanceLost):
                await asked(worker_calls)
            for client in (service_calls, worker_calls):
                await client.close()
        async with worker(*options("echo", *flags(service))) as (_, address):
            client = WorkerClient(address, service)
            with pytest.raises(InstanceLost):
                await asked(client)
            await client.close()

    asyncio.run(scenario())


def test_both_sides_go_on_with_certificates_that_were_replaced(
    tmp_path: Path, signers: tuple[Pair, Pair]
) -> None:
    before, after = signers
    workers = put(tmp_path / "workers", Role.WORKERS, before)
    service = put(tmp_path / "service", Role.SERVICE, before)
    left = put(tmp_path / "left", Role.SERVICE, before)

    async def scenario() -> None:
        async with worker(*options("nap", *flags(workers))) as (_, address):
            client, late = WorkerClient(address, service), WorkerClient(address, left)
            assert await asked(client, "nap", 0.0) == 0.0
            in_hand = asyncio.create_task(asked(client, "nap", 0.5))
            await asyncio.sleep(0.1)
            put(tmp_path / "workers", Role.WORKERS, after)
            put(tmp_path / "service", Role.SERVICE, after)

            assert await asked(client, "nap", 0.01) == 0.01  # by a new channel
            assert await in_hand == 0.5  # over the old one
            with pytest.raises(InstanceLost):  # whose authority nobody trusts any more
                await asked(late, "nap", 0.0)
            for each in (client, late):
                await each.close()

    asyncio.run(scenario())


def test_files_that_cannot_be_read_leave_things_as_they_are(
    tmp_path: Path, signers: tuple[Pair, Pair]
) -> None:
    ours, _ = signers
    workers = put(tmp_path / "workers", Role.WORKERS, ours)
    service = put(tmp_path / "service", Role.SERVICE, ours)

    async def scenario() -> None:
        async with worker(*options("echo", *flags(workers))) as (_, address):
            client = WorkerClient(address, service)
            assert await asked(client) == 0.0
            (tmp_path / "service" / "tls.crt").unlink()
            assert await asked(client) == 0.0
            put(tmp_path / "service", Role.SERVICE, ours)
            (tmp_path / "service" / "tls.key").unlink()
            assert await asked(client) == 0.0
            (tmp_path / "workers" / "tls.crt").unlink()
            other = WorkerClient(address, put(tmp_path / "service", Role.SERVICE, ours))
            assert await asked(other) == 0.0  # the worker answers with what it had
            for each in (client, other):
                await each.close()

    asyncio.run(scenario())


def test_a_certificate_lasts_as_long_as_it_was_made_for(signers: tuple[Pair, Pair]) -> None:
    made = signed(Role.WORKERS, signers[0], 10).certificate
    assert lasts(made, 9.99)
    assert not lasts(made, 10.01)
    assert not lasts(b"", 0)
    assert not lasts(b"-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n", 0)
