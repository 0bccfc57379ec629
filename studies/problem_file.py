"""A scheduling problem from a file, in the form of `scheduler.problem_form`."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.errors import InvalidInput
from scheduler.problem import Problem
from scheduler.problem_form import problem_from_dict


def read_problem(path: Path) -> Problem:
    """Give the problem of a file.

    Raises:
        InvalidInput: If it cannot be read or is not JSON, a field is missing or of the wrong
            kind, or breaks a rule.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput.of("problem", f"must be a readable file ({reason})", path) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput.of("problem", "must be JSON", str(error)) from error
    return problem_from_dict(document)
