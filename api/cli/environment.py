"""The settings of this process: its environment, and the options that go before it."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from api.schemas import faults_of
from api.settings import Settings
from pipelines.errors import InvalidInput


def settings_with(**options: Any) -> Settings:  # noqa: ANN401 - checked by Settings
    """Give the settings; options that are None are read from the environment.

    Raises:
        InvalidInput: If an option or a variable breaks a rule.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InvalidInput(faults_of(error, model=Settings)) from error
