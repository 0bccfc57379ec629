"""Pipelines by name.

A registered pipeline is an entry point of the group `circinus.pipelines`: an
attribute that is a `Pipeline`, or a callable without arguments that gives one. A
reference `module:attribute` names any other importable pipeline; it runs code that
the caller chose, so only where the caller owns the process it may be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from pipelines.errors import InvalidInput
from pipelines.pipeline import Pipeline

GROUP = "circinus.pipelines"


def registered() -> Mapping[str, EntryPoint]:
    """Give the registered pipelines by name, not loaded, in alphabetical order."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    return dict(sorted(found.items()))


def load_pipeline(reference: str, *, allow_import: bool = False) -> Pipeline:
    """Give the pipeline of a registered name, or of `module:attribute`.

    Args:
        reference: What names the pipeline.
        allow_import: Whether `module:attribute` may be used. Never pass True for a reference
            that came over a network.

    Raises:
        InvalidInput: If nothing is registered under the name, or the import fails or gives
            something that is no pipeline.
    """
    if ":" in reference:
        if not allow_import:
            rule = f"must be a registered pipeline ({', '.join(registered()) or 'none is'})"
            raise InvalidInput.of("pipeline", rule, reference)
        return _as_pipeline(reference, _imported(reference))
    entries = registered()
    if reference not in entries:
        known = ", ".join(entries) or "none is"
        hint = " or module:attribute" if allow_import else ""
        raise InvalidInput.of("pipeline", f"must be registered ({known}){hint}", reference)
    return _as_pipeline(reference, _loaded(entries[reference]))


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInput.of("pipeline", f"must be importable ({error})", entry.value) from error


def _imported(reference: str) -> object:
    module, _, path = reference.partition(":")
    try:
        found: object = import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput.of("pipeline", f"must be importable ({error})", reference) from error
    return found


def _as_pipeline(reference: str, found: object) -> Pipeline:
    made = found() if callable(found) else found
    if not isinstance(made, Pipeline):
        rule = "must name a Pipeline or a callable that gives one"
        raise InvalidInput.of("pipeline", rule, f"{reference} ({type(made).__name__})")
    return made
