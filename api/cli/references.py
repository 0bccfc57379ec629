"""Pipelines as the command line names them."""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.errors import CircinusError, InvalidInput
from pipelines.pipeline import Pipeline
from pipelines.registry import load_pipeline


def pipeline_here(reference: str) -> Pipeline:
    """Give the pipeline of a registered name, or of `module:attribute`.

    Modules of the current folder are found, as `python -m` would find them.

    Raises:
        InvalidInput: If there is no such pipeline.
    """
    here = str(Path.cwd())
    if ":" in reference and here not in sys.path:
        sys.path.insert(0, here)
    try:
        return load_pipeline(reference, allow_import=True)
    except CircinusError:
        raise
    except Exception as error:
        rule = f"must be importable ({type(error).__name__}: {error})"
        raise InvalidInput.of("pipeline", rule, reference) from error
