"""What every command has: `--json`, `--debug`, exit codes, and errors printed in one place."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from dataclasses import is_dataclass
from enum import IntEnum
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer

from circinus.api.cli.options import connect
from circinus.api.client import Client, Refused
from circinus.api.store.failures import DatabaseFailed
from circinus.api.text.screen import Screen
from circinus.pipelines.errors import CircinusError, InvalidInput


class ExitCode(IntEnum):
    """What a script learns from a command."""

    OK = 0
    INTERNAL = 1  # something failed that is not the caller's doing, or no service answered
    BAD_INPUT = 2
    INFEASIBLE = 3  # no plan can meet the objectives
    EXHAUSTED = 4  # a limit ended planning before the first feasible plan
    DIFFERS = 5  # the cluster is not as rendered
    REFUSED = 6  # by the cluster: conflict, quota, admission, a missing role or namespace
    NOT_READY = 8  # workers are not ready, in time or now
    DATABASE = 9  # it cannot be used: corrupt, newer, read-only, full, away, another service's
    FAILED = 10  # no plan, because operators failed
    INTERRUPTED = 130


class CommandFailed(CircinusError):
    """Ends a command with an exit code and a message."""

    def __init__(self, code: ExitCode, message: str) -> None:
        self.code = code
        super().__init__(message)


EPILOG = (
    "Exit codes: 0 ok, 1 internal error or no service, 2 bad input, 3 infeasible, "
    "4 budget exhausted, 10 operators failed; of deploy: 5 differs, 6 refused by the cluster, "
    "8 not ready; 9 the database cannot be used."
)

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_COMMON = (
    ("as_json", Annotated[bool, typer.Option("--json", help="Print one JSON document.")]),
    ("debug", Annotated[bool, "Show the traceback of an error."]),
)
_BAD_REQUEST = range(400, 500)


def command(app: typer.Typer, body: Callable[..., None]) -> None:
    """Register a function as a command of its name, see `wrapped`."""
    app.command(body.__name__.rstrip("_").replace("_", "-"), epilog=EPILOG)(wrapped(body))


def wrapped(body: Callable[..., None]) -> Callable[..., None]:
    """Return a function `(screen, ...)` as typer takes it: `--json`, `--debug`, errors printed.

    `Annotated[kind, "help"]` is an option with the parameter's name. A parameter whose type is a
    dataclass stands for options, its fields, and a Client for `--url` and `--token`.
    """
    signature = inspect.signature(body, eval_str=True)
    own = sorted(list(signature.parameters.values())[1:], key=lambda p: p.annotation is Client)
    made: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
    made |= {p.name: connect for p in own if p.annotation is Client}
    parts = {n: inspect.signature(maker, eval_str=True).parameters for n, maker in made.items()}

    @wraps(body)
    def run(*, as_json: bool, debug: bool, **arguments: Any) -> None:  # noqa: ANN401 - the command's own
        screen = Screen(as_json=as_json)
        try:
            with ExitStack() as opened:
                if as_json:  # what a pipeline prints in this process is no part of the document
                    opened.enter_context(redirect_stdout(sys.stderr))
                for name, maker in made.items():
                    value = maker(**{part: arguments.pop(part) for part in parts[name]})
                    arguments[name] = opened.enter_context(value) if maker is connect else value
                body(screen, **arguments)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of the process
            _leave(screen, error, debug=debug)

    options = [one for p in own for one in parts.get(p.name, {p.name: p}).values()]
    options += [inspect.Parameter(n, _KEYWORD, default=False, annotation=a) for n, a in _COMMON]
    run.__signature__ = signature.replace(parameters=[*map(_option, options)])  # type: ignore[attr-defined]  # what inspect reads
    return run


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter as typer takes it; a truth is a flag that has no opposite."""
    kind = parameter.annotation
    if get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], str):
        plain, text = get_args(kind)
        flag = [f"--{parameter.name.replace('_', '-')}"] if plain is bool else []
        kind = Annotated[plain, typer.Option(*flag, help=text)]
    return parameter.replace(kind=_KEYWORD, annotation=kind)


def leave(code: ExitCode) -> None:
    """End the command with a code that is no error, by typer.Exit unless it is OK."""
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def _leave(screen: Screen, error: BaseException, *, debug: bool) -> None:
    code, message = _diagnosis(error)
    violations = error.violations if isinstance(error, InvalidInput) else ()
    if screen.as_json:
        screen.json({"error": {"code": code, "message": message, "errors": violations}})
    else:
        for line in [str(violation) for violation in violations] or [message]:
            # Without control characters: a message may quote a file.
            text = "".join(c if c.isprintable() else " " for c in line)
            screen.err.print(f"error: {text}", soft_wrap=True)
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    raise typer.Exit(int(code))


def _diagnosis(error: BaseException) -> tuple[ExitCode, str]:
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED, "interrupted"
    if isinstance(error, InvalidInput):
        return ExitCode.BAD_INPUT, "bad input"
    if isinstance(error, Refused) and error.problem.status in _BAD_REQUEST:
        return ExitCode.BAD_INPUT, str(error)
    if isinstance(error, DatabaseFailed):
        return ExitCode.DATABASE, error.whole
    if isinstance(error, CircinusError):
        return error.code if isinstance(error, CommandFailed) else ExitCode.INTERNAL, str(error)
    return ExitCode.INTERNAL, f"internal error: {type(error).__name__}: {error}"
