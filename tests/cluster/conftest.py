"""The clusters that the tests marked `cluster` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.cluster import programs, real_nodes, telling_pods
from tests.cluster.cluster import Cluster, given, running
from tests.cluster.requirements import BROKEN, HOW, not_here

_left_out: list[str] = []


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with simulated nodes of three tiers."""
    found = given()
    if found is not None:
        yield found
        return
    _need(*programs.CONTROL_PLANE)
    with running() as found:
        yield found


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Cluster]:
    """A cluster with a real node per tier that runs pods, and tainted simulated ones."""
    _need(*programs.CONTROL_PLANE, *programs.NODE)
    lacking = real_nodes.missing()
    if lacking:
        not_here(lacking)
    with ExitStack() as stack:
        try:
            found = stack.enter_context(running(real=True))
            telling_pods.told(found)
        except BROKEN as error:  # containers may lack cgroups, mounts, bridges or more
            not_here(f"real nodes do not work here: {error}")
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    with cluster.namespace() as name:
        yield name


def _need(*wanted: programs.Program) -> None:
    try:
        for program in wanted:
            programs.find(program)
    except programs.NotBuilt as error:
        not_here(str(error))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember the cluster tests that were left out."""
    _left_out.extend(item.nodeid for item in items if item.get_closest_marker("cluster"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to run what was left out."""
    if _left_out:
        terminalreporter.write_line(f"{len(_left_out)} cluster tests left out: {HOW}.")
