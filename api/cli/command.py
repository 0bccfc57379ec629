"""What every command has: `--json`, `--debug`, and errors told in one place."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from api.cli.exits import EPILOG, ExitCode
from api.cli.screen import Screen
from api.client import Refused
from pipelines.errors import CircinusError, Fault, InvalidInput

Body = TypeVar("Body", bound=Callable[..., None])

_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
_BAD_REQUEST = range(400, 500)


class _Failure(NamedTuple):
    code: ExitCode
    message: str
    faults: Sequence[Fault] = ()


def command(app: typer.Typer, name: str | None = None) -> Callable[[Body], Body]:
    """Register a function `(screen, ...)` as a command; its first argument is no option."""

    def register(body: Body) -> Body:
        app.command(name, epilog=EPILOG)(wrapped(body))
        return body

    return register


def wrapped(body: Callable[..., None]) -> Callable[..., None]:
    """Give a function `(screen, ...)` as typer takes it: `--json`, `--debug`, errors told."""

    @wraps(body)
    def run(*, as_json: bool, debug: bool, **arguments: Any) -> None:  # noqa: ANN401 - the command's own
        screen = Screen(as_json=as_json)
        try:
            body(screen, **arguments)
        except (CircinusError, KeyboardInterrupt) as error:
            _leave(screen, _foreseen(error), error, debug=debug)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the process
            message = f"internal error: {type(error).__name__}: {error}"
            _leave(screen, _Failure(ExitCode.INTERNAL, message), error, debug=debug)

    options = [
        inspect.Parameter("as_json", _KEYWORD, default=False, annotation=_JSON),
        inspect.Parameter("debug", _KEYWORD, default=False, annotation=_DEBUG),
    ]
    signature = inspect.signature(body, eval_str=True)
    own = [p.replace(kind=_KEYWORD) for p in list(signature.parameters.values())[1:]]
    run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]  # what inspect reads
    return run


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def leave(code: ExitCode) -> None:
    """End the command with a code that is no error.

    Raises:
        typer.Exit: Unless the code is OK.
    """
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def _foreseen(error: BaseException) -> _Failure:
    if isinstance(error, KeyboardInterrupt):
        return _Failure(ExitCode.INTERRUPTED, "interrupted")
    if isinstance(error, InvalidInput):
        return _Failure(ExitCode.BAD_INPUT, "bad input", error.faults)
    if isinstance(error, Refused) and error.problem.status in _BAD_REQUEST:
        return _Failure(ExitCode.BAD_INPUT, str(error))
    return _Failure(ExitCode.INTERNAL, str(error))


def _leave(screen: Screen, failure: _Failure, error: BaseException, *, debug: bool) -> None:
    if screen.as_json:
        faults = [{"field": f.field, "rule": f.rule, "value": f.value} for f in failure.faults]
        told = {"code": int(failure.code), "message": failure.message, "errors": faults}
        screen.json({"error": told})
    else:
        lines = [str(fault) for fault in failure.faults] or [failure.message]
        for line in lines:
            screen.err.print(f"error: {_one_line(line)}", soft_wrap=True)
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    raise typer.Exit(int(failure.code))


def _one_line(text: str) -> str:
    """Give text without control characters: a message may quote a file."""
    return "".join(c if c.isprintable() else " " for c in text)
