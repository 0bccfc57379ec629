"""`circinus study`: the group is there at once, its commands when they are asked for.

Studies import every planner and policy there is, with the libraries behind them: seconds that no
other command should wait for.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from api.cli.exits import EPILOG


class _Studies(TyperGroup):
    """A group whose commands are imported on first use."""

    @cached_property
    def _loaded(self) -> TyperGroup:
        from api.cli.study import group

        return get_group(group())

    # Which click a context is of depends on the version of typer.
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Give the names of the studies."""
        return self._loaded.list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Give a study by name."""
        return self._loaded.get_command(ctx, cmd_name)


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(
        help="Measure and compare offline.", epilog=EPILOG, no_args_is_help=True, cls=_Studies
    )
    app.add_typer(group, name="study")
