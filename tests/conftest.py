"""Which process runs which tests, where several do (`pytest -n`)."""

from __future__ import annotations

import os
import time

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

GROUPS = {
    # Promise seconds: one of them at a time, beside tests that wait more than they compute.
    "seconds": (
        "tests/api/cli/test_breakpoint.py",
        "tests/calls/test_billed.py",
        "tests/deploy/test_predicted_as_served.py",
        "tests/deploy/test_ramping.py",
        "tests/deploy/test_routed.py",
        "tests/e2e/test_following.py",
        "tests/e2e/test_observed_objectives.py",
        "tests/e2e/test_overload.py",
        "tests/e2e/test_own_chains.py",
        "tests/e2e/test_verify.py",
        "tests/studies/test_live_dispatch.py",
    ),
    # Have nodes that run pods, which are started once.
    "real nodes": (
        "tests/cluster/test_end_to_end.py",
        "tests/cluster/test_plans_on_real_nodes.py",
        "tests/cluster/test_real_nodes.py",
        "tests/cluster/test_rolling.py",
    ),
}
"""Files whose tests one process runs, in their order."""
LONG = (
    "tests/calls/test_minute.py",
    "tests/cluster/test_ownership.py",
    "tests/e2e/test_openapi.py",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_kills.py",
    "tests/calls/test_killed.py",
    "tests/e2e/test_pool_following.py",
    "tests/e2e/test_dispatchers.py",
    "tests/e2e/test_tutorial.py",
    "tests/planner/test_scores.py",
    "tests/e2e/test_search_on.py",
    "tests/e2e/test_drift.py",
)
"""Files of few tests that take a minute or more, in the order in which they begin."""
UNTIL = float(os.environ.get("CIRCINUS_TEST_UNTIL") or "inf")
"""Unix time: from then on tests of `LONG` are skipped, and come last. CI's time is bounded."""
END = float(os.environ.get("CIRCINUS_TEST_END") or "inf")
"""Unix time: from then on all tests are skipped."""
_GROUP_OF = {file: group for group, files in GROUPS.items() for file in files}


class GroupScheduling(LoadFileScheduling):  # type: ignore[misc]  # has no types
    """Hands out groups of files, and files, whole; those that take long come first, or last."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _GROUP_OF.get(file, file)

    def schedule(self) -> None:
        """Hand out tests; the first of each process are those of most tests."""
        super().schedule()
        bounded = bool(os.environ.get("CIRCINUS_TEST_UNTIL"))
        for file in LONG if bounded else reversed(LONG):
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=bounded)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what no time is left for."""
    now = time.time()
    if now > END or (now > UNTIL and item.location[0] in LONG):
        pytest.skip("no time is left")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Return what hands out tests where those of a file stay together; None: as xdist does."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadfile" else None
