"""What every command has: `--json`, `--debug`, exit codes, and errors told in one place."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from circinus.api.cli.options import DEFAULT_URL, Token, Url, connect
from circinus.api.cli.screen import Screen
from circinus.api.client import Refused
from circinus.pipelines.errors import CircinusError, Fault, InvalidInput

Body = TypeVar("Body", bound=Callable[..., None])


class ExitCode(IntEnum):
    """What a script learns from a command."""

    OK = 0
    INTERNAL = 1
    """Something failed that is not the caller's doing, or no service answered."""
    BAD_INPUT = 2
    INFEASIBLE = 3
    """No plan can meet the objectives."""
    EXHAUSTED = 4
    """A limit ended planning before a feasible plan was found."""
    DIFFERS = 5
    """The cluster is not as rendered."""
    REFUSED = 6
    """The cluster said no: conflict, quota, admission, a missing role or namespace."""
    NO_ROOM = 7
    """The nodes have no room."""
    NOT_READY = 8
    """Workers are not ready, in time or now."""
    INTERRUPTED = 130


EPILOG = (
    "Exit codes: 0 ok, 1 internal error or no service, 2 bad input, 3 infeasible, "
    "4 budget exhausted; of deploy: 5 differs, 6 refused by the cluster, 7 no room, 8 not ready."
)

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
_BAD_REQUEST = range(400, 500)


class _Failure(NamedTuple):
    code: ExitCode
    message: str
    faults: Sequence[Fault] = ()


def command(app: typer.Typer, name: str | None = None) -> Callable[[Body], Body]:
    """Register a function as a command, see `wrapped`; name: None: the function's."""

    def register(body: Body) -> Body:
        app.command(name, epilog=EPILOG)(wrapped(body))
        return body

    return register


def wrapped(body: Callable[..., None]) -> Callable[..., None]:
    """Give a function `(screen, ...)` as typer takes it: `--json`, `--debug`, errors told.

    A parameter `client` is no option, either: it is connected to the service of `--url` and
    `--token`, which the command then has.
    """
    signature = inspect.signature(body, eval_str=True)
    own = dict(list(signature.parameters.items())[1:])
    asks = own.pop("client", None) is not None

    @wraps(body)
    def run(*, as_json: bool, debug: bool, **arguments: Any) -> None:  # noqa: ANN401 - the command's own
        screen = Screen(as_json=as_json)
        try:
            if asks:
                with connect(arguments.pop("url"), arguments.pop("token")) as client:
                    body(screen, client, **arguments)
            else:
                body(screen, **arguments)
        except (CircinusError, KeyboardInterrupt) as error:
            _leave(screen, _foreseen(error), error, debug=debug)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the process
            message = f"internal error: {type(error).__name__}: {error}"
            _leave(screen, _Failure(ExitCode.INTERNAL, message), error, debug=debug)

    service = [("url", DEFAULT_URL, Url), ("token", None, Token)] if asks else []
    common = [*service, ("as_json", False, _JSON), ("debug", False, _DEBUG)]
    parameters = [parameter.replace(kind=_KEYWORD) for parameter in own.values()] + [
        inspect.Parameter(name, _KEYWORD, default=default, annotation=option)
        for name, default, option in common
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what inspect reads
    return run


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
        for line in [str(fault) for fault in failure.faults] or [failure.message]:
            # Without control characters: a message may quote a file.
            text = "".join(c if c.isprintable() else " " for c in line)
            screen.err.print(f"error: {text}", soft_wrap=True)
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    raise typer.Exit(int(failure.code))
