"""A folder of its own for every test of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.malformed import as_yaml, query
from tests.contracts.databases import opened

PIPELINES = """
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec
from circinus.pipelines.execution.pipeline import Pipeline


def cyclic():
    specs = (OperatorSpec(name="a", after=("b",)), OperatorSpec(name="b", after=("a",)))
    return PipelineGraph(name="round", operators=specs)


def adder():
    return Pipeline(
        name="adder",
        operators=(
            Operator(
                spec=OperatorSpec(name="add", knobs=(Knob(name="by", values=(0, 1)),)),
                run=lambda inputs, knobs: inputs + knobs["by"],
            ),
        ),
        score=lambda output, expected: float(output == expected),
    )


def broken():
    raise RuntimeError("no weights")


number = 3
"""


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder of the test's own, in which a module of pipelines can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("CIRCINUS_URL", "CIRCINUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    database = tmp_path_factory.mktemp("database") / "circinus.sqlite3"
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", f"sqlite:///{database}")
    opened(f"sqlite:///{database}").dispose()
    (tmp_path / "my_pipelines.py").write_text(PIPELINES)
    (tmp_path / "good.yaml").write_text(as_yaml(query()))
    sys.modules.pop("my_pipelines", None)
    yield tmp_path
    sys.modules.pop("my_pipelines", None)
