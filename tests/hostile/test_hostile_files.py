"""No file that a user may name ends a command otherwise than with 2 and the reason."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cli.commands import invoke
from tests.api.cli.conftest import folder  # noqa: F401 - a fixture
from tests.hostile.files import EVERY, HostileFile, write
from tests.hostile.pace import assert_in_time

loaded: set[str] = set()


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """What other tests have left is not looked through before each."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_there_are_enough_of_them() -> None:
    assert len(EVERY) >= 100
    assert len({each.name for each in EVERY}) == len(EVERY)


@pytest.mark.parametrize("hostile", EVERY, ids=lambda hostile: hostile.name)
def test_it_ends_the_command_with_2_and_the_reason(
    hostile: HostileFile,
    folder: Path,  # noqa: F811
) -> None:
    write(hostile, folder)

    def once() -> tuple[float, float]:
        gc.collect()
        began = time.process_time()
        result = invoke(*hostile.command, "--json")
        spent_s = time.process_time() - began
        assert result.exit_code == 2, (result.output, result.exception)
        told = json.loads(result.stdout)["error"]["errors"]
        assert told
        assert all(
            violation["field"] and violation["rule"] and violation["value"] for violation in told
        )
        assert len(result.stdout) < 100_000
        return 0.0, spent_s

    if hostile.command[0] not in loaded:  # what is loaded for it is start-up
        once()
        loaded.add(hostile.command[0])
    assert_in_time(hostile.name, once)
