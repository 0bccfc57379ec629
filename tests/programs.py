"""Programs of the machine that some tests need."""

import shutil

import pytest


def need(program: str) -> None:
    """Skip the test, or all that use the fixture, where a program is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
