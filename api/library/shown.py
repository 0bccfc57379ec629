"""Results as a shell and a notebook show them. Whatever came from users is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size

from rich.console import Console, RenderableType

from circinus.api.schemas.explanation import ExplanationView, WhatIfView
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import ShortfallView
from circinus.api.text import formats, tables
from circinus.api.text.screen import PIPED_WIDTH

_COLUMNS = ("plan", "accuracy", "latency", "cost", "SLOs", "where", "configuration")
_MOST = 10
"""Plans that a shell is shown."""


class FoundPlan(PlanView):
    """A plan that was found: its figures are estimates with intervals."""

    def __repr__(self) -> str:
        """Return it in two lines."""
        figures = (
            f"accuracy {formats.accuracy(self.accuracy)}",
            f"latency {formats.latency(self.latency_s)}",
            formats.cost(self),
        )
        return f"{self.id}: {', '.join(figures)}\n  {formats.where(self)}; {self._knobs}"

    __str__ = __repr__

    @property
    def _knobs(self) -> str:
        return formats.configuration(self) or "no knobs"

    def _repr_html_(self) -> str:
        return plans_html([self])


class FoundExplanation(ExplanationView):
    """Why a plan is what it is, from measurements that are there."""

    def __repr__(self) -> str:
        """Return it as `circinus explain` prints it."""
        return printed(*tables.explanation_parts(self))

    __str__ = __repr__


class FoundWhatIf(WhatIfView):
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
        """Say what it is: a shell shows no drawing."""
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
    rows = "".join(f"<tr>{''.join(map(_cell, _cells(plan)))}</tr>" for plan in plans)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(plan: PlanView) -> Sequence[str]:
    return (
        plan.id,
        formats.accuracy(plan.accuracy),
        formats.latency(plan.latency_s),
        formats.cost(plan),
        formats.states(plan),
        formats.where(plan),
        formats.configuration(plan),
    )


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"
