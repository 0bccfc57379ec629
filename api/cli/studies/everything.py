"""`circinus study all`: every study by its own command, and one page of their results."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.command import CommandFailed, ExitCode
from circinus.api.text import formats
from circinus.api.text.screen import Screen
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.studies.data import TRACES
from circinus.studies.report.steps import ERRORS, StudyStep, report, run, steps

_PAGE = "report.html"


def all_(
    screen: Screen,
    out: Annotated[Path, Option(help="Folder of the page and of every study.", file_okay=False)],
    traces: Annotated[
        Path | None,
        Option(help="Folder with traces, of `make traces`; none: shipped ones.", file_okay=False),
    ] = None,
    quick: Annotated[bool, Option("--quick/--full", help="Minutes, or hours.")] = True,
    only: Annotated[str, "Names of studies, by commas; none: all."] = "",
    workers: Annotated[int | None, Option(help="Steps at once; none: one a core.", min=1)] = None,
) -> None:
    """Run every study and write one page: report.html. Run again, it goes on where it stopped.

    Done is what was run with the same options, traces and version.
    """
    folders = [Path(name) for name in TRACES]
    if traces is not None:
        folders = sorted(path.parent for path in traces.glob("*/trace.npz"))
        rule = "must hold traces, as `make traces` makes them"
        checks.require(bool(folders), "--traces", rule, str(traces))
    every = chosen = steps(folders, quick=quick)
    if only:
        wanted, known = only.split(","), _names(every)
        others = {*wanted} & _names(steps(folders, quick=not quick)).keys() - known.keys()
        rule = f"must be of {'--quick' if quick else '--full'}, too"
        checks.require(not others, "--only", rule, ", ".join(sorted(others)))
        for name in wanted:
            checks.among("--only", name, known)
        chosen = tuple(step for step in every if _names([step]).keys() & {*wanted})
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out), screen.follow() as lines:
        failed = list[StudyStep]()
        for step, words in _run(chosen, out, workers or os.cpu_count() or 1):
            if step.result(out / step.name) is None:
                failed.append(step)
            lines.update({"studies": words})
            (out / _PAGE).write_text(report(every, out, quick=quick), encoding="utf-8")
    screen.show(
        f"{out / _PAGE}: {len(chosen) - len(failed)} of {len(chosen)} studies",
        document={"page": out / _PAGE, "failed": [step.name for step in failed]},
    )
    if failed:
        names = ", ".join(step.name for step in failed)
        what = f"{names}: see {ERRORS} in their folders"
        raise CommandFailed(ExitCode.INTERNAL, what)


def _names(chosen: Sequence[StudyStep]) -> dict[str, None]:
    """Return what `--only` may name: studies, and steps of one trace."""
    studies = dict.fromkeys(step.name.split("-")[0] for step in chosen)
    return studies | dict.fromkeys(step.name for step in chosen)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold a folder for this process; InvalidInput if another one does."""
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput.of("--out", "must be in use by no other run", str(out)) from None
        yield


def _run(
    chosen: Sequence[StudyStep], out: Path, count: int
) -> Iterator[tuple[StudyStep, tuple[str, str]]]:
    """Run steps, so many at once; yield each when it ends, with words on what is left."""
    clock, left, done = SystemClock(), sum(step.minutes for step in chosen), 0.0
    began = clock.now()
    with ThreadPoolExecutor(count) as pool:
        runs = {pool.submit(run, step, out / step.name): step for step in chosen}
        try:
            for number, ended in enumerate(as_completed(runs), start=1):
                step = runs[ended]
                if ended.result():
                    done += step.minutes
                else:
                    left -= step.minutes
                elapsed_s = clock.now() - began
                guess = elapsed_s * (left / done - 1) if done else 60.0 * left / count
                words = f"{number} of {len(chosen)} studies, about {formats.seconds(guess)} left"
                yield step, (str(number), words)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # those that run end with Ctrl-C, too
            raise
