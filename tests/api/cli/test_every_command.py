"""What all commands have in common: usage, help, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import circinus
from circinus.api.cli.command import command
from circinus.api.text.screen import Screen
from circinus.pipelines.errors import Unavailable
from tests.api.cli.commands import invoke

COMMANDS = (
    "demo",
    "serve",
    "validate",
    "plan",
    "submit",
    "status",
    "cancel",
    "plans",
    "export",
    "request",
    "undeploy",
    "schedule",
    "doctor",
    "pipelines",
    "prepare",
    "calibrate",
    "pool",
    "study",
)


@pytest.mark.parametrize("arguments", [["plan"], ["fly"], ["plan", "good.yaml", "--fast"]])
def test_a_wrong_usage_ends_in_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def _failing(error: Exception) -> typer.Typer:
    broken = typer.Typer()

    def fail(screen: Screen) -> None:
        raise error

    command(broken, fail)
    return broken


def test_an_unforeseen_error_ends_in_1_without_a_traceback() -> None:
    result = CliRunner().invoke(_failing(KeyError("tier")), [])
    assert result.exit_code == 1
    assert result.stderr == "error: internal error: KeyError: 'tier'\n"


def test_debug_shows_the_traceback() -> None:
    result = CliRunner().invoke(_failing(KeyError("tier")), ["--debug"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_nothing_in_an_error_reaches_the_terminal_raw() -> None:
    error = Unavailable("\x1b[31mred\x07 [bold]not markup[/bold]\nnext", retry_after_s=1)
    result = CliRunner().invoke(_failing(error), [])
    assert result.stderr == "error:  [31mred  [bold]not markup[/bold] next\n"


def test_every_command_has_help_with_the_exit_codes() -> None:
    overview = invoke("--help")
    for name in COMMANDS:
        assert name in overview.stdout
        result = invoke(name, "--help")
        assert result.exit_code == 0
        text = " ".join(result.stdout.split())
        assert "Exit codes: 0 ok, 1 internal error or no service, 2 bad input" in text, name
        if name not in ("pool", "study"):  # groups
            assert "--json" in text


@pytest.mark.parametrize("starting", ["cli", "serving.service", "control.planning_worker"])
def test_no_start_waits_for_the_libraries_of_studies_models_and_dispatch(starting: str) -> None:
    told = (
        f"import sys, circinus.api.{starting};"
        " print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    heavy = ("torch", "gpytorch", "sklearn", "numba", "scipy.stats", "circinus.studies")
    done = subprocess.run(
        [sys.executable, "-c", told, *heavy],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_package_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "circinus", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split()[-1] == circinus.__version__


def test_a_piped_table_is_as_wide_as_columns_says() -> None:
    widths = [
        max(map(len, invoke("pipelines", columns=columns).stdout.splitlines()))
        for columns in (60, 140)
    ]
    assert widths[0] <= 60 < widths[1] <= 140
