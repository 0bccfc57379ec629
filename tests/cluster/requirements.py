"""What a machine must be able to do for these tests; what it cannot is skipped, and said."""

from __future__ import annotations

import os
import subprocess
from typing import NoReturn

import httpx
import pytest

REQUIRED = "CIRCINUS_CLUSTER_TESTS"
"""Set to `required` where a test that cannot run must fail instead of being skipped."""
HOW = "`make cluster-test` builds what they need and runs them"
BROKEN = (OSError, RuntimeError, AssertionError, subprocess.SubprocessError, httpx.HTTPError)
"""What starting something raises on a machine that does not let it."""


def not_here(reason: str) -> NoReturn:
    """Skip what this machine cannot do; fail where everything is required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(reason)
    pytest.skip(reason)
