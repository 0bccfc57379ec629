"""The pipelines that a service runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.errors import InvalidInput
from pipelines.pipeline import Pipeline
from pipelines.registry import load_pipeline, registered


@dataclass(frozen=True, slots=True)
class RegisteredPipelines:
    """A `Catalogue` of the installed pipelines and those that the operator adds.

    Attributes:
        extra: Name -> `module:attribute`, for the operator's own.
    """

    extra: dict[str, str] = field(default_factory=dict)
    _loaded: dict[str, Pipeline] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, references: tuple[str, ...]) -> RegisteredPipelines:
        """Give the catalogue with more pipelines, loaded for their names.

        Raises:
            InvalidInput: If one cannot be loaded, or has the name of another.
        """
        catalogue = cls()
        for reference in references:
            pipeline = load_pipeline(reference, allow_import=True)
            if pipeline.name in catalogue.names:
                raise InvalidInput.of("extra_pipelines", "must have new names", pipeline.name)
            catalogue.extra[pipeline.name] = reference
            catalogue._loaded[pipeline.name] = pipeline
        return catalogue

    @property
    def names(self) -> tuple[str, ...]:
        """See `Catalogue.names`."""
        return tuple(sorted({*registered(), *self.extra}))

    def pipeline(self, name: str) -> Pipeline:
        """See `Catalogue.pipeline`."""
        if name not in self._loaded:  # loading twice in a race gives equal pipelines
            self._loaded[name] = load_pipeline(name)
        return self._loaded[name]

    def reference(self, name: str) -> str:
        """See `Catalogue.reference`."""
        if name not in self.names:
            raise InvalidInput.of("pipeline", "must be registered", name)
        return self.extra.get(name, name)
