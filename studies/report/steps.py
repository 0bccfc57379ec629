"""Studies as steps: each a command of `circinus study` in a process and a folder of its own.

What is done is not run again while options, traces and version are the same. What was stopped
starts anew, or goes on where its study can (`study goodput`).
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import yaml

from circinus.deploy.workers.watched import watched
from circinus.studies.data import trace_folder
from circinus.studies.report.pages import code, grid, heading, page, paragraph
from circinus.studies.report.tables import digest, text, version

RESULT = "result.json"
"""Of a step's folder, written when the step is done."""

ERRORS = "errors.txt"
_OUTPUT = "output.json"
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStep:
    """A command with its options."""

    name: str  # of its folder
    title: str
    answers: str  # which figures of the papers
    words: tuple[str, ...]  # behind `circinus study`
    minutes: float  # about, on one core

    @property
    def command(self) -> str:
        """The command as a user would type it, but for the folder."""
        return shlex.join(("circinus", "study", *self.words))

    def result(self, folder: Path) -> Mapping[str, Any] | None:
        """Return its `results` and `seconds`; None unless of these options, traces and version."""
        try:
            known = json.loads((folder / RESULT).read_bytes())
        except (OSError, ValueError):
            return None
        there = isinstance(known, dict) and known.get("of") == _of(self.words)
        return known if there else None


@cache
def _of(words: tuple[str, ...]) -> list[str]:
    """Return what a result is of: options, traces and version."""
    folders = [trace_folder(word) for option, word in pairwise(words) if option == "--trace"]
    return [*words, digest(*folders), version()]


def steps(traces: Sequence[Path], *, quick: bool) -> tuple[StudyStep, ...]:
    """Return the steps of `steps.yaml` of a kind, those for each trace once a trace."""
    document = (files("circinus.studies.report") / "steps.yaml").read_text(encoding="utf-8")
    kind = "quick" if quick else "full"
    return tuple(
        step
        for entry in yaml.safe_load(document)
        if kind in entry
        for step in _of_entry({**entry, **entry[kind]}, entry.get("options", ""), traces)
    )


def _of_entry(
    entry: Mapping[str, Any], shared: str, traces: Sequence[Path]
) -> Iterator[StudyStep]:
    """Yield the steps of an entry, whose own options follow those that both kinds share."""
    words = f"{entry['study']} {shared} {entry['options']}".split()
    for folders in _folders(entry.get("traces"), traces):
        end = f"-{folders[0].name}" if len(folders) == 1 else ""
        yield StudyStep(
            name=f"{entry['name']}{end}",
            title=f"{entry['title']}: {folders[0].name}" if end else entry["title"],
            answers=entry["answers"],
            words=(*words, *(word for folder in folders for word in ("--trace", str(folder)))),
            minutes=float(entry["minutes"]),
        )


def _folders(which: str | None, traces: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Yield the traces of each step: `each` one but `-NAME`, `all` of them, none, or those named.

    Where none of those named is there the first trace takes its place.
    """
    if which is None:
        yield ()
        return
    if which == "all":
        yield traces
        return
    first, *others = which.split(",")
    if first == "each":
        yield from ([folder] for folder in traces if f"-{folder.name}" not in others)
        return
    named = [folder for folder in traces if folder.name in (first, *others)]
    yield from ([folder] for folder in named or traces[:1])


def run(step: StudyStep, folder: Path) -> bool:
    """Run a step unless it is done; return whether it was run."""
    result, of = folder / RESULT, _of(step.words)
    if step.result(folder) is not None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for old in (result, *folder.glob("*.svg")):
        old.unlink(missing_ok=True)
    # One thread for each step: as many steps run as there are cores. It ends with this process.
    alone = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    words = [*watched("circinus"), "study", *step.words, "--out", str(folder), "--json"]
    output, began = folder / _OUTPUT, monotonic()
    with output.open("wb") as out, (folder / ERRORS).open("wb") as errors:
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=out, stderr=errors, env={**os.environ, **alone}
        ) as process:
            code = process.wait()
        if code:  # with --json an error is a document on stdout
            errors.write(output.read_bytes())
    if not code:
        results = {"seconds": monotonic() - began, "results": json.loads(output.read_bytes())}
        document = json.dumps({"of": of, **results}, indent=1)
        part = result.with_suffix(".part")
        part.write_text(document, encoding="utf-8")
        part.replace(result)
    output.unlink()
    return True


def report(chosen: Sequence[StudyStep], out: Path, *, quick: bool) -> str:
    """Return the page of all steps: pictures and tables of those that are done."""
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    how = "quick: few seeds, which say little" if quick else "full"
    results = [step.result(out / step.name) for step in chosen]
    minutes = sum(result["seconds"] for result in results if result is not None) / _MINUTE_S
    about = (
        f"circinus {version()}, {how}; Python {platform.python_version()} on "
        f"{platform.machine()}, {os.cpu_count()} cores, load average {load} at the end. "
        f"The studies took {minutes:.0f} minutes together."
    )
    parts = [paragraph(about)]
    for step, result in zip(chosen, results, strict=True):
        folder = out / step.name
        parts += [heading(step.title), paragraph(step.answers), code(step.command)]
        if result is None:
            parts.append(paragraph("Not there yet, or it failed."))
            continue
        parts += [picture.read_text(encoding="utf-8") for picture in sorted(folder.glob("*.svg"))]
        parts += _tables(result["results"])
    return page("Studies of Circinus", *parts)


def _tables(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of each list of rows; a column of one value is words before it."""
    for title, value in results.items():
        if not (isinstance(value, list) and value and isinstance(value[0], dict)):
            continue
        rows = [{name: text(cell, 4) for name, cell in row.items()} for row in value]
        yield heading(title.replace("_", " "), level=3)
        alike = {name for name in rows[0] if len({row[name] for row in rows}) == 1}
        alike = alike if len(rows) > 1 else set()
        yield paragraph(
            ", ".join(f"{n} {rows[0][n]}" for n in rows[0] if n in alike and rows[0][n])
        )
        head = [name for name in rows[0] if name not in alike]
        yield grid(head, [[row[name] for name in head] for row in rows])
