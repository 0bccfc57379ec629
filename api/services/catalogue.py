"""The pipelines that a service offers."""

from __future__ import annotations

from typing import Protocol

from pipelines.errors import InvalidInput
from pipelines.pipeline import Pipeline


class Catalogue(Protocol):
    """Pipelines by name. Loading may be slow, once; safe to share between threads."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in alphabetical order; none is loaded for it."""

    def pipeline(self, name: str) -> Pipeline:
        """Give a pipeline.

        Raises:
            InvalidInput: If none has that name, or it cannot be loaded.
        """

    def reference(self, name: str) -> str:
        """Give what another process of this service loads the pipeline by.

        Raises:
            InvalidInput: If none has that name.
        """


def offered(catalogue: Catalogue, name: str) -> Pipeline:
    """Give a pipeline that a client names, with examples of its own.

    Raises:
        InvalidInput: If none has that name, it brings no examples, or this machine lacks what it
            needs.
    """
    if name not in catalogue.names:  # never a `module:attribute`: that would run a client's code
        known = ", ".join(catalogue.names) or "none is"
        raise InvalidInput.of("pipeline", f"must be registered ({known})", name)
    pipeline = catalogue.pipeline(name)
    if pipeline.examples is None:
        raise InvalidInput.of("pipeline", "must bring examples to be planned by a service", name)
    pipeline.require_available()
    return pipeline
