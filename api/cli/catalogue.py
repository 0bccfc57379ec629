"""`circinus pipelines`: what can be planned, whether or not it can run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from api.bootstrap.registry import RegisteredPipelines
from api.cli.command import command, wrapped
from api.cli.exits import EPILOG
from api.cli.screen import Screen
from api.rendering.tables import table
from api.schemas import KnobView, OperatorView, PipelineView, pipeline_view
from api.settings import Settings
from pipelines.errors import InvalidInput
from pipelines.registry import listed

_app = typer.Typer()


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    _app.callback(invoke_without_command=True, epilog=EPILOG)(wrapped(pipelines))
    command(_app, "show")(show)
    app.add_typer(_app, name="pipelines")


def pipelines(screen: Screen, context: typer.Context) -> None:
    """List the pipelines: operators, knobs, whether they can run here and what is missing."""
    if context.invoked_subcommand is not None:
        return
    views = _views()
    made = table("", "pipeline", "operators (knobs)", "configurations", "here", right=[2])
    for view in views:
        operators = " > ".join(map(_operator_text, view.operators))
        state = "available" if view.available else _missing_text(view)
        made.add_row(Text(view.name), operators, str(view.configurations or "-"), Text(state))
    screen.show(made, document=[view.model_dump(mode="json") for view in views])


def show(
    screen: Screen,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a registered pipeline.")],
) -> None:
    """Show a pipeline: what its score means, every operator with its knobs, what is missing."""
    views = {view.name: view for view in _views()}
    if name not in views:
        raise InvalidInput.of("pipeline", f"must be registered ({', '.join(views)})", name)
    view = views[name]
    screen.show(*_page(view), document=view)


def _views() -> list[PipelineView]:
    catalogue = RegisteredPipelines.of(Settings().extra_pipelines)
    return [pipeline_view(one) for one in listed(catalogue.names, catalogue.pipeline)]


def _page(view: PipelineView) -> Sequence[RenderableType]:
    head = f"{view.name}: {view.metric}, {view.configurations} configurations"
    made = table("", "operator", "after", "knob", "values")
    for operator in view.operators:
        after = ", ".join(operator.after)
        rows = [(knob.name, _values_text(knob)) for knob in operator.knobs] or [("", "")]
        for i, (knob, values) in enumerate(rows):
            made.add_row(*((operator.name, after) if i == 0 else ("", "")), knob, Text(values))
    return [
        *([head, made] if view.operators else [view.name]),
        "available here" if view.available else f"not available here: {_missing_text(view)}",
    ]


def _operator_text(operator: OperatorView) -> str:
    knobs = ", ".join(knob.name for knob in operator.knobs)
    return f"{operator.name} ({knobs})" if knobs else operator.name


def _values_text(knob: KnobView) -> str:
    return ", ".join(map(str, knob.values))


def _missing_text(view: PipelineView) -> str:
    return "; ".join(
        f"{part.name}: {part.install}" if part.install else part.name for part in view.missing
    )
