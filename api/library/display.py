"""How a shell and a notebook show a search and its result; text of users is escaped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size
from threading import Event
from typing import Any, TypeAlias

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from circinus.api.schemas.explanation import ExplanationView, WhatIfView
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import ShortfallView, TrialView, progress_view, trial_view
from circinus.api.text import formats, tables
from circinus.api.text.screen import PIPED_WIDTH
from circinus.api.text.tables import progress_words
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.slo import Slo
from circinus.planner.search.result import PlanningPhase, PlanningProgress

_COLUMNS = ("plan", "accuracy", "latency", "cost", "SLOs", "where", "configuration")
_MOST = 10
"""Plans that a shell prints."""


class ResultPlan(PlanView):
    """A plan of the result: its figures are estimates with intervals."""

    def __repr__(self) -> str:
        """Return it in two lines."""
        knobs = formats.settings(self.configuration) or "no knobs"
        return f"{self.id}: {formats.figures(self)}\n  {formats.where(self)}; {knobs}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return plans_html([self])


class ResultExplanation(ExplanationView):
    """Why a plan is what it is, from measurements that are there."""

    def __repr__(self) -> str:
        """Return it as `circinus explain` prints it."""
        return printed(*tables.explanation_parts(self))

    __str__ = __repr__


class ResultWhatIf(WhatIfView):
    """What a change of circumstances would do, from measurements that are there."""

    def __repr__(self) -> str:
        """Return it as `circinus whatif` prints it."""
        return printed(*tables.what_if_parts(self))

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing that a notebook shows, and a file can hold."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write it to a file; OSError if it cannot be written."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        """Return what it is: a shell shows no drawing."""
        return f"<drawing of {len(self.svg)} bytes: save('NAME.svg') writes it>"


def printed(*parts: RenderableType) -> str:
    """Return what a console as wide as this terminal would print."""
    width = get_terminal_size((PIPED_WIDTH, 0)).columns
    text = StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False, emoji=False)
    console.print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def result_text(
    words: Sequence[str], plans: Sequence[PlanView], missed: ShortfallView | None
) -> str:
    """Return a result for a shell."""
    parts: list[RenderableType] = [*words]
    if plans:
        parts.append(tables.plans_table(plans, most=_MOST))
    if missed is not None:
        parts.append(tables.shortfall_text(missed))
    return printed(*parts)


def result_html(
    words: Sequence[str], plans: Sequence[PlanView], missed: ShortfallView | None
) -> str:
    """Return a result for a notebook."""
    parts = [f"<p>{escape(line)}</p>" for line in words]
    if plans:
        parts.append(plans_html(plans))
    if missed is not None:
        parts.append(f"<p>{escape(missed.sentence)}</p>")
        if missed.closest is not None:
            parts += ["<p>Closest measured plan:</p>", plans_html([missed.closest])]
    return f"<div>{''.join(parts)}</div>"


def plans_html(plans: Iterable[PlanView]) -> str:
    """Return a table of plans."""
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    cells = (map(escape, _cells(plan)) for plan in plans)
    rows = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(plan: PlanView) -> Sequence[str]:
    return (
        plan.id,
        formats.accuracy(plan.accuracy),
        formats.latency(plan.latency_s),
        formats.cost(plan),
        formats.states(plan),
        formats.where(plan),
        formats.settings(plan.configuration),
    )


_BAR_WIDTH = 20
_EVERY_S = 0.1  # between two pictures of a bar


ShowProgress: TypeAlias = Callable[[float, str], None]
"""Shows a part in [0, 1] of the budget, and a text."""


@contextmanager
def bar(name: str, *, wanted: bool) -> Iterator[ShowProgress]:
    """Yield what shows a bar in a notebook, or where stderr is a terminal; elsewhere nothing."""
    if wanted and (display := _notebook()) is not None:
        yield _in_notebook(name, display)
    elif wanted and sys.stderr.isatty():
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what a narrow terminal leaves
        parts = (
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=_BAR_WIDTH, table_column=Column(min_width=_BAR_WIDTH)),
            TextColumn("{task.fields[words]}", markup=False, table_column=rest),
        )
        console = Console(stderr=True)
        with Progress(*parts, console=console, auto_refresh=False, expand=True) as progress:
            task = progress.add_task(name, total=1.0, words="starting")
            yield lambda part, words: progress.update(
                task, completed=part, words=words, refresh=True
            )
    else:
        yield lambda _part, _words: None


@dataclass
class BarObserver:
    """An `Observer` that draws a bar, records trials, and ends the search when `stop` is set."""

    show: ShowProgress
    slo: Slo
    infrastructure: Infrastructure
    stop: Event
    trials: dict[str, TrialView] = field(default_factory=dict)  # the newest by configuration
    _drawn_at: float = -1.0
    _clock: SystemClock = field(default_factory=SystemClock)

    def progress(self, progress: PlanningProgress) -> None:
        """See `planner.search.result.Observer`."""
        for trial in progress.trials:
            key = str(trial.configuration)
            self.trials.pop(key, None)  # in the order in which they were measured last
            self.trials[key] = trial_view(trial)
        now, over = self._clock.now(), progress.phase is PlanningPhase.FINISHED
        if over or now - self._drawn_at >= _EVERY_S:
            self._drawn_at = now
            view = progress_view(progress, self.slo, self.infrastructure)
            self.show(1.0 if over else _part(progress), progress_words(view))

    def cancelled(self) -> bool:
        """See there."""
        return self.stop.is_set()


def _part(progress: PlanningProgress) -> float:
    """Return how much of the limit that is nearest was spent."""
    pairs = [(progress.spent_s, progress.profiling_left_s)]
    if progress.time_left_s is not None:
        pairs.append((progress.elapsed_s, progress.time_left_s))
    return max(spent / (spent + left) if spent + left > 0 else 0.0 for spent, left in pairs)


def _in_notebook(name: str, display: Any) -> ShowProgress:  # noqa: ANN401 - IPython's own module
    """Return what renews a bar in place, which is an output of a cell."""

    def picture(part: float, words: str) -> object:
        bar = f'<progress max="1" value="{part:.3f}"></progress>'
        return display.HTML(f"<div>{escape(name)} {bar} {escape(words)}</div>")

    handle = display.display(picture(0.0, "starting"), display_id=True)
    return lambda part, words: handle.update(picture(part, words))


def _notebook() -> Any:  # noqa: ANN401 - IPython's own module, or None
    """Return what displays in a notebook; None where this is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if ipython is None or shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return None
    return ipython.display
