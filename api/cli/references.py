"""Pipelines as the command line names them."""

from __future__ import annotations

import sys
from pathlib import Path

from api.cli.screen import Screen
from pipelines.pipeline import Pipeline
from pipelines.registry import listed, load_pipeline, registered


def pipeline_here(reference: str) -> Pipeline:
    """Give the pipeline of a registered name, or of `module:attribute`.

    Modules of the current folder are found, as `python -m` would find them.

    Raises:
        InvalidInput: If there is no such pipeline, or this machine lacks what it needs.
    """
    here = str(Path.cwd())
    if ":" in reference and here not in sys.path:
        sys.path.insert(0, here)
    pipeline = load_pipeline(reference, allow_import=True)
    pipeline.require_available()
    return pipeline


def all_here(screen: Screen) -> list[str]:
    """Give the names of the registered pipelines that can run; the others are told."""
    found = listed(registered())
    for one in found:
        if one.missing:
            told = ", ".join(map(str, one.missing))
            screen.note(f"{one.name}: left out, not available here: {told}")
    return [one.name for one in found if not one.missing]
