"""Pipelines by name.

A registered pipeline is an entry point of the group `circinus.pipelines`: an
attribute that is a `Pipeline`, or a callable without arguments that gives one. A
reference `module:attribute` names any other importable pipeline, or a LangChain chain
with its metric beside it (`langchain.named`); it runs code that the caller chose, so
only where the caller owns the process it may be used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter

from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.execution.metrics import imported
from circinus.pipelines.execution.needs import Need
from circinus.pipelines.execution.pipeline import Pipeline, Score

GROUP = "circinus.pipelines"


def registered() -> Mapping[str, EntryPoint]:
    """Return the registered pipelines by name, not loaded, in alphabetical order."""
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    return dict(sorted(entries.items()))


def load_pipeline(reference: str, *, allow_import: bool = False) -> Pipeline:
    """Return the pipeline of a name, or of `module:attribute` where imports are allowed.

    Never allow them for a reference received over a network. InvalidInput if nothing is
    registered under the name, or what it names cannot be imported, raises or is no pipeline.
    """
    if ":" in reference:
        if not allow_import:
            rule = f"must be a registered pipeline ({', '.join(registered()) or 'none is'})"
            raise InvalidInput.of("pipeline", rule, reference)
        return _made(reference, lambda: _read(reference, _imported(reference)))
    entries = registered()
    if reference not in entries:
        known = ", ".join(entries) or "none is"
        hint = " or module:attribute" if allow_import else ""
        raise InvalidInput.of("pipeline", f"must be registered ({known}){hint}", reference)
    return _made(reference, entries[reference].load)


def load_metric(reference: str, field: str) -> Score:
    """Return the metric `module:function`. It runs that code: never for one from over a network.

    InvalidInput about `field` if it is of another form, cannot be imported, or is no function.
    """
    well = all(reference.partition(":"))
    checks.require(well, field, "must be module:function", reference)
    module, _, path = reference.partition(":")
    return imported(module, path, field, reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPipeline:
    """A pipeline by name, whether it can run on this machine or not."""

    name: str  # what it is registered as
    pipeline: Pipeline | None  # none: it cannot even be loaded
    missing: tuple[Need, ...]  # why it cannot run here; empty: it can


def listed(
    names: Iterable[str], load: Callable[[str], Pipeline] = load_pipeline
) -> list[ListedPipeline]:
    """Return pipelines with what keeps them away: one that cannot load costs its line only."""
    entries = []
    for name in names:
        pipeline = None
        try:
            pipeline = load(name)
            lacking = pipeline.available()
        except CircinusError as error:
            lacking = (Need(name=str(error), install="", is_there=lambda: False),)
        entries.append(ListedPipeline(name=name, pipeline=pipeline, missing=lacking))
    return entries


def _imported(reference: str) -> object:
    module, _, path = reference.partition(":")
    return attrgetter(path)(import_module(module))


def _made(reference: str, load: Callable[[], object]) -> Pipeline:
    try:
        target = load()
        made = target() if callable(target) else target
        if ":" in reference:
            made = _read(reference, made)
    except CircinusError:
        raise
    except (Exception, SystemExit) as error:  # the code of the pipeline's author: a border
        rule = f"must be importable ({type(error).__name__}: {error})"
        raise InvalidInput.of("pipeline", rule, reference) from error
    if not isinstance(made, Pipeline):
        rule = "must name a Pipeline, a LangChain chain, or a callable that gives one"
        raise InvalidInput.of("pipeline", rule, f"{reference} ({type(made).__name__})")
    return made


def _read(reference: str, attribute: object) -> object:
    """Return the pipeline of a chain, read with what stands beside it; else the value."""
    if "langchain_core" not in sys.modules:  # then it is no chain, and need not be waited for
        return attribute
    from circinus.pipelines.langchain.named import is_chain, named_chain

    return named_chain(reference, attribute) if is_chain(attribute) else attribute
