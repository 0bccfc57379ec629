"""The errors of the project, classed by who must act.

    CircinusError
    ├── InvalidInput(violations)         the caller: something handed over breaks a rule
    ├── OperatorFailed(operator)     the pipeline's author: an operator raised or gave nonsense
    ├── Stopped                      nobody: it was asked for
    └── Unavailable(retry_after_s)   nobody: try again later

An infeasible query is not an error: it is an answer, and has a type of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_VIOLATIONS = 50
"""More than this many are not listed: what comes in can be made of nothing but violations."""

LONGEST_CAUSE = 2000
"""Characters of an operator's message: it travels in headers, which are short."""

_NOTICE = 50  # characters that state how much was left out, at most
_LONGEST_VALUE = 120
_LONGEST_TEXT = 2**12  # that is written out before it is shortened


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: which field, what it must be, what it was."""

    field: str  # dotted path of the field, such as `slo.accuracy`
    rule: str  # what holds for a good value, such as `must be in [0, 1]`
    value: str  # the offending value as text, shortened

    def __post_init__(self) -> None:
        for name in ("field", "rule", "value"):
            object.__setattr__(self, name, _printable(getattr(self, name)))

    def __str__(self) -> str:
        """Return `field rule, got value.`."""
        return f"{self.field} {self.rule}, got {self.value}."

    @classmethod
    def of(cls, field: str, rule: str, value: object) -> Violation:
        """Return the violation by a value of any type, its text shortened."""
        if isinstance(value, str | bytes) and len(value) > _LONGEST_TEXT:
            return cls(field, rule, f"{value[:_LONGEST_VALUE]!r}... ({len(value)} characters)")
        text = repr(value)
        if len(text) > _LONGEST_VALUE:
            text = f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"
        return cls(field, rule, text)


def words_of(error: BaseException) -> str:
    """Return the type and the message of any error, also of one whose message cannot be had."""
    try:
        words = str(error)
    except BaseException as wrong:  # noqa: BLE001 - its own code
        words = f"its message cannot be had: {type(wrong).__name__}"
    return f"{type(error).__name__}: {words}".removesuffix(": ")


def _printable(text: str) -> str:
    """Return a text that can be encoded, shortened to `LONGEST_CAUSE`."""
    if len(text) > LONGEST_CAUSE + _NOTICE:  # else it was shortened before
        text = f"{text[:LONGEST_CAUSE]}... ({len(text) - LONGEST_CAUSE} more characters)"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class CircinusError(Exception):
    """Anything that goes wrong in a way this project foresees. Pickled, it stays what it is."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return what restores it, whatever its constructor asks for."""
        return _restored, (type(self), self.args), self.__dict__


class InvalidInput(CircinusError, ValueError):
    """Input of the caller breaks rules: `violations`, at least one; nothing was changed."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(" ".join(str(violation) for violation in self.violations))

    @classmethod
    def of(cls, field: str, rule: str, value: object) -> InvalidInput:
        """Return the error for one broken rule."""
        return cls([Violation.of(field, rule, value)])


class OperatorFailed(CircinusError):
    """An operator raised, timed out or gave something that is no payload: `cause`, in words.

    `violations` are what an operator that takes the pipeline's input reports of it: none where it
    just failed.
    """

    def __init__(self, operator: str, cause: str, violations: Sequence[Violation] = ()) -> None:
        self.operator = operator
        self.cause = _printable(cause)
        self.violations = tuple(violations)
        super().__init__(f"operator {operator} failed: {self.cause}")


def _restored(kind: type[CircinusError], args: tuple[object, ...]) -> CircinusError:
    error = kind.__new__(kind)
    error.args = args
    return error


class Stopped(CircinusError):
    """What ran was ended on the way, because its caller has given up."""

    def __init__(self, reason: str, *, spent_s: float = 0.0, calls_s: float = 0.0) -> None:
        self.spent_s = spent_s  # what it had run for, `>= 0`
        self.calls_s = calls_s  # of that, what was waited for endpoints, `>= 0`
        super().__init__(reason)


class Unaffordable(Stopped):
    """A call, which was not made, would cost more than is left: nothing more is run."""


class Unavailable(CircinusError):
    """Nothing is wrong, but it cannot be served now; try again after `retry_after_s`, `>= 0`."""

    def __init__(self, reason: str, *, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(reason)
