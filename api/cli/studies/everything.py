"""`circinus study all`: every study by its own command, and one page of their results."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.command import CommandFailed, ExitCode
from circinus.api.text import formats
from circinus.api.text.screen import Screen
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.studies.report.steps import ERRORS, RESULT, StudyStep, report, run, steps

_PAGE = "report.html"


def all_(
    screen: Screen,
    traces: Annotated[Path, Option(help="Folder with traces, of `make traces`.", file_okay=False)],
    out: Annotated[Path, Option(help="Folder of the page and of every study.", file_okay=False)],
    quick: Annotated[bool, Option("--quick/--full", help="Minutes, or hours.")] = True,
    only: Annotated[str, "Names of studies, by commas; none: all."] = "",
    workers: Annotated[int | None, Option(help="Steps at once; none: one a core.", min=1)] = None,
) -> None:
    """Run every study and write one page: report.html. Run again, it goes on where it stopped."""
    folders = sorted(path.parent for path in traces.glob("*/trace.npz"))
    rule = "must hold traces, as `make traces` makes them"
    checks.require(bool(folders), "--traces", rule, str(traces))
    chosen = steps(folders, quick=quick)
    if only:
        known = dict.fromkeys(step.name.split("-")[0] for step in chosen)
        for name in only.split(","):
            checks.among("--only", name, known)
        chosen = tuple(step for step in chosen if step.name.split("-")[0] in only.split(","))
    out.mkdir(parents=True, exist_ok=True)
    clock, left = SystemClock(), sum(step.minutes for step in chosen)
    count = workers or os.cpu_count() or 1
    failed = list[StudyStep]()
    with screen.follow() as lines, ThreadPoolExecutor(count) as pool:
        began, done = clock.now(), 0.0
        runs = {pool.submit(run, step, out / step.name): step for step in chosen}
        for number, ended in enumerate(as_completed(runs), start=1):
            step = runs[ended]
            if ended.result():
                done += step.minutes
            else:
                left -= step.minutes
            if not (out / step.name / RESULT).exists():
                failed.append(step)
            elapsed_s = clock.now() - began
            guess = elapsed_s * (left / done - 1) if done else 60.0 * left / count
            words = f"{number} of {len(chosen)} studies, about {formats.seconds(guess)} left"
            lines.update({"studies": (str(number), words)})
            (out / _PAGE).write_text(report(chosen, out, quick=quick), encoding="utf-8")
    screen.show(
        f"{out / _PAGE}: {len(chosen) - len(failed)} of {len(chosen)} studies",
        document={"page": out / _PAGE, "failed": [step.name for step in failed]},
    )
    if failed:
        names = ", ".join(step.name for step in failed)
        what = f"{names}: see {ERRORS} in their folders"
        raise CommandFailed(ExitCode.INTERNAL, what)
