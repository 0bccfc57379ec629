"""Examples are made apart: what is slow, large or broken costs who asked for it alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from circinus.deploy.profiling.examples import ExampleFiles, ExampleSet
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from circinus.pipelines.model.payload import content_hash

LIMIT = 32 * 2**20
PATIENCE_S = 60.0


def examples_of(name: str, count: int = 10, seed: int = 0, **more: object) -> ExampleSet:
    reference = f"tests.deploy.exemplary:{name}"
    return ExampleSet(reference=reference, count=count, seed=seed, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def _kept(folder: Path, **how: int) -> AsyncIterator[ExampleFiles]:
    files = ExampleFiles(folder / "kept", LIMIT, **how)
    before = set(psutil.Process().children())
    try:
        yield files
    finally:
        await files.close()
        assert set(psutil.Process().children()) <= before


def run(folder: Path, scenario: Callable[[ExampleFiles], Awaitable[None]], **how: int) -> None:
    async def whole() -> None:
        async with _kept(folder, **how) as files:
            await scenario(files)

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("without", InvalidInput, "pipeline must bring examples.*got 'without'"),
        ("raising", OperatorFailed, "ValueError: no luck"),
        ("refusing", InvalidInput, "count must be even, got 10"),
        ("exiting", OperatorFailed, "ended with exit code 3"),
        ("odd", InvalidInput, "payload must be None, truth value"),
        ("huge", InvalidInput, r"example.count must make at most .* \(CIRCINUS_EXAMPLES_LIM"),
        ("greedy", InvalidInput, r"example.count must make at most .* \(CIRCINUS_EXAMPLES_LIM"),
        ("nowhere", InvalidInput, "nowhere"),
    ],
)
def test_what_is_wrong_with_examples_is_told(
    tmp_path: Path, name: str, error: type[Exception], message: str
) -> None:
    async def scenario(files: ExampleFiles) -> None:
        for _ in range(2):
            with pytest.raises(error, match=message):
                await files.example(examples_of(name), 9, PATIENCE_S)

    run(tmp_path, scenario)


def test_there_are_no_more_examples_than_are_made(tmp_path: Path) -> None:
    async def scenario(files: ExampleFiles) -> None:
        with pytest.raises(InvalidInput, match=r"example.index must be in \[0, 5\).*got 5"):
            await files.example(examples_of("few"), 5, PATIENCE_S)
        assert (await files.example(examples_of("few"), 4, PATIENCE_S)).input == 4

    run(tmp_path, scenario)


def test_a_set_is_made_once_and_those_of_others_do_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setenv("EXEMPLARY_CALLS", str(calls))

    async def scenario(files: ExampleFiles) -> None:
        slow = asyncio.create_task(files.example(examples_of("hanging"), 0, PATIENCE_S))
        wanted = examples_of("counted")
        both = [files.example(wanted, index, PATIENCE_S) for index in (3, 7, 0)]
        found = await asyncio.gather(*both)
        assert [each.input for each in found] == [3, 7, 0]
        assert [each.expected for each in found] == [4, 8, 1]
        assert calls.read_text() == "10\n"
        assert not slow.done()
        slow.cancel()
        hashes = await files.hashes(examples_of("counted", inputs_only=True), PATIENCE_S)
        assert hashes == {content_hash(i) for i in range(10)}

    run(tmp_path, scenario)


def test_who_asks_for_one_does_not_wait_for_all_where_they_are_made_one_by_one(
    tmp_path: Path,
) -> None:
    async def scenario(files: ExampleFiles) -> None:
        first = await files.example(examples_of("endless", 10_000), 2, PATIENCE_S)
        assert first.input == 2

    run(tmp_path, scenario)


def test_what_is_not_made_in_time_is_unavailable_and_goes_on_for_who_comes_again(
    tmp_path: Path,
) -> None:
    async def scenario(files: ExampleFiles) -> None:
        wanted, began = examples_of("steady", 40), time.monotonic()
        with pytest.raises(Unavailable, match="were not made in time: ask for fewer") as raised:
            await files.example(wanted, 39, 0.3)
        assert time.monotonic() - began < 5.0
        assert raised.value.retry_after_s >= 1.0
        assert (await files.example(wanted, 39, PATIENCE_S)).input == 39

    run(tmp_path, scenario)


def test_those_that_nobody_waits_for_make_way(tmp_path: Path) -> None:
    async def scenario(files: ExampleFiles) -> None:
        left = [files.example(examples_of("hanging", seed=i), 0, 0.5) for i in range(4)]
        gave_up = await asyncio.gather(*left, return_exceptions=True)
        assert all(isinstance(each, Unavailable) for each in gave_up)
        assert (await files.example(examples_of("few"), 0, PATIENCE_S)).input == 0

    run(tmp_path, scenario)


def test_when_too_many_wait_the_next_is_told_so_at_once(tmp_path: Path) -> None:
    async def scenario(files: ExampleFiles) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(files.example(examples_of("hanging", seed=i), 0, PATIENCE_S))
                for i in range(32)
            ]
            await asyncio.sleep(0)
            with pytest.raises(Unavailable, match="32 sets of examples are being made"):
                await files.example(examples_of("few"), 0, PATIENCE_S)
            # Whoever has one that is being made may still wait for it.
            with pytest.raises(Unavailable, match="not made in time"):
                await files.example(examples_of("hanging", seed=3), 0, 0.01)
            for task in waiting:
                task.cancel()

    run(tmp_path, scenario)


def test_the_oldest_go_when_there_are_too_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sets of 10 MB, of which three fit: the first is made again."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("EXEMPLARY_CALLS", str(calls))

    async def scenario(files: ExampleFiles) -> None:
        for seed in (0, 1, 2, 3, 3, 0):
            await files.hashes(examples_of("megabytes", 10, seed), PATIENCE_S)
        assert calls.read_text() == "0\n1\n2\n3\n0\n"
        assert list((tmp_path / "kept").iterdir()) == []  # files have no names

    run(tmp_path, scenario)


def test_a_data_set_that_was_handed_over_is_read_apart_as_well(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"input": 1, "expected": 2}\n')

    async def scenario(files: ExampleFiles) -> None:
        wanted = ExampleSet(kind="jsonl", folder=str(tmp_path), inputs_only=True)
        assert await files.hashes(wanted, PATIENCE_S) == {content_hash(1)}

    run(tmp_path, scenario)


def test_small_sets_are_forgotten_too_as_each_holds_a_descriptor(tmp_path: Path) -> None:
    async def scenario(files: ExampleFiles) -> None:
        held = []
        for seed in range(6):
            await files.hashes(examples_of("few", seed=seed), PATIENCE_S)
            await asyncio.sleep(0.1)  # pipes of the process are closed a moment later
            held.append(psutil.Process().num_fds())
        assert held[-1] <= held[2], held

    run(tmp_path, scenario, most=2)
