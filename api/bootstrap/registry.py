"""The pipelines that a service runs, and the quotas of its tenants."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from circinus.api.query_file import read_document
from circinus.api.schemas.violations import validated
from circinus.api.settings import Settings
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.registry import load_pipeline, registered


@dataclass(frozen=True, slots=True)
class RegisteredPipelines:
    """A `Catalogue` of the installed pipelines and those that the operator adds."""

    extra: dict[str, str] = field(default_factory=dict)  # name -> `module:attribute`
    _loaded: dict[str, Pipeline] = field(default_factory=dict, init=False, repr=False)
    # Once: going through all that is installed takes milliseconds, and names are looked up often.
    _installed: tuple[str, ...] = field(
        default_factory=lambda: tuple(registered()), init=False, repr=False
    )

    @classmethod
    def of(cls, references: tuple[str, ...]) -> RegisteredPipelines:
        """Return it with more pipelines; InvalidInput if names clash or loading fails."""
        catalogue = cls()
        for reference in references:
            try:
                pipeline = load_pipeline(reference, allow_import=True)
            except InvalidInput as error:
                violation = error.violations[0]
                raise InvalidInput.of("extra_pipelines", violation.rule, reference) from error
            if pipeline.name in catalogue.names:
                raise InvalidInput.of("extra_pipelines", "must have new names", pipeline.name)
            catalogue.extra[pipeline.name] = reference
            catalogue._loaded[pipeline.name] = pipeline
        return catalogue

    @property
    def names(self) -> tuple[str, ...]:
        """See `Catalogue.names`."""
        return tuple(sorted({*self._installed, *self.extra}))

    def pipeline(self, name: str) -> Pipeline:
        """See `Catalogue.pipeline`."""
        if name not in self._loaded:  # loading twice in a race returns equal pipelines
            self._loaded[name] = load_pipeline(name)
        return self._loaded[name]

    def referred(self, reference: str) -> Pipeline:
        """Return the pipeline of a reference; InvalidInput if none of these has it."""
        for name in self.names:
            if self.reference(name) == reference:
                return self.pipeline(name)
        raise InvalidInput.of("pipeline", "must be registered", reference)

    def reference(self, name: str) -> str:
        """See `Catalogue.reference`."""
        if name not in self.names:
            raise InvalidInput.of("pipeline", "must be registered", name)
        return self.extra.get(name, name)


def settings_with(**options: Any) -> Settings:  # noqa: ANN401 - checked by Settings
    """Return the settings, None: from the environment; InvalidInput if an option breaks a rule."""
    values = {name: value for name, value in options.items() if value is not None}
    return validated(lambda named: Settings(**named), values, Settings)


def reference_here(name: str) -> str:
    """Return where a pipeline is that CIRCINUS_EXTRA_PIPELINES registers; else the name itself."""
    extra = settings_with().extra_pipelines
    if not extra or ":" in name:
        return name
    import_from_here()
    return RegisteredPipelines.of(extra).extra.get(name, name)


def import_from_here() -> None:
    """Let modules of the current folder be imported, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def pipeline_here(reference: str, *, to_prepare: bool = False) -> Pipeline:
    """Return the pipeline of a registered name, or of `module:attribute`, here or installed.

    Raises InvalidInput if there is no such pipeline, or this machine lacks what it needs: of one
    that is about to be prepared, all but its weights.
    """
    reference = reference_here(reference)
    if ":" in reference:
        import_from_here()
    pipeline = load_pipeline(reference, allow_import=True)
    pipeline.require_available(to_prepare=to_prepare)
    return pipeline


def read_quotas(text: str) -> dict[str, float]:
    """Return tenant -> largest part of each shared tier, in [0, 1].

    The text is `acme=0.5,lab=0.25`, the path of a YAML file of `tenant: part`, or nothing.
    InvalidInput if it is neither, a tenant repeats, or a part is out of range.
    """
    if not text.strip():
        return {}
    if "=" not in text:
        return {tenant: _part(tenant, part) for tenant, part in read_document(Path(text)).items()}
    pairs = [tuple(map(str.strip, entry.partition("=")[::2])) for entry in text.split(",")]
    checks.unique("quotas", [tenant for tenant, _ in pairs])
    numbers = {tenant: _number(tenant, part) for tenant, part in pairs}
    return {tenant: _part(tenant, number) for tenant, number in numbers.items()}


def _number(tenant: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput.of(f"quotas.{tenant}", "must be a number", text) from error


def _part(tenant: str, part: object) -> float:
    checks.name("quotas", tenant)
    if isinstance(part, bool) or not isinstance(part, int | float):
        raise InvalidInput.of(f"quotas.{tenant}", "must be a number", part)
    checks.probability(f"quotas.{tenant}", part)
    return float(part)
