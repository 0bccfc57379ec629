"""The cluster that the tests marked `cluster` share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster import programs, real_nodes
from tests.cluster.cluster import Cluster, given, running

REQUIRED = "CIRCINUS_CLUSTER_TESTS"
"""Set to `required` where a test that cannot run must fail instead of being skipped."""
_HOW = "`make cluster-test` builds what they need and runs them"
_left_out: list[str] = []


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with simulated nodes of three tiers."""
    found = given()
    if found is not None:
        yield found
        return
    for program in programs.CONTROL_PLANE:
        _need(program)
    with running() as found:
        yield found


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Cluster]:
    """A cluster with a real node per tier, and tainted simulated ones."""
    for program in (*programs.CONTROL_PLANE, *programs.NODE):
        _need(program)
    lacking = real_nodes.missing()
    if lacking:
        pytest.skip(lacking)
    with running(real=True) as found:
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    with cluster.namespace() as name:
        yield name


def _need(program: programs.Program) -> None:
    try:
        programs.find(program)
    except programs.NotBuilt as error:
        if os.environ.get(REQUIRED) == "required":
            raise
        pytest.skip(f"{error} {_HOW}.")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember the cluster tests that were left out."""
    _left_out.extend(item.nodeid for item in items if item.get_closest_marker("cluster"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to run what was left out."""
    if _left_out:
        terminalreporter.write_line(f"{len(_left_out)} cluster tests left out: {_HOW}.")
