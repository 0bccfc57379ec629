"""Planning from programs: a chain and data made here, and memories that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableLambda,
    RunnablePassthrough,
)

import circinus
from circinus import Planned

Chain = Runnable[Any, Any]


@pytest.fixture(autouse=True, scope="session")
def own_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("memory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRCINUS_DATABASE_URL", f"sqlite:///{folder}/memory.sqlite3")
        patch.setenv("CIRCINUS_INTERRUPTED", str(folder / "interrupted"))
        patch.setenv("CIRCINUS_WORKER_LOGS", str(folder / "logs"))
        yield folder


def exact(output: object, expected: object) -> float:
    return float(output == expected)


def cased() -> Chain:
    tidy: Chain = RunnableLambda(str.strip, name="tidy")
    case = RunnablePassthrough[str](name="case").configurable_alternatives(
        ConfigurableField(id="case"),
        default_key="same",
        upper=RunnableLambda(str.upper),
        title=RunnableLambda(str.title),
    )
    return tidy | case


PAIRS = [(f" user {n} ", f"USER {n}") for n in range(30)]


@pytest.fixture(scope="session")
def planned(own_memory: Path) -> Planned:
    """A result with a plan, on three tiers."""
    return circinus.plan(
        cased(),
        PAIRS,
        accuracy=0.8,
        latency_s=0.5,
        score=exact,
        infrastructure="three-tier",
        cold=True,
    )


@pytest.fixture(scope="session")
def missed(own_memory: Path) -> Planned:
    """A result without a plan: no configuration is quick enough."""
    return circinus.plan(
        cased(), PAIRS, accuracy=0.8, latency_s=1e-6, score=exact, name="hasty", cold=True
    )
