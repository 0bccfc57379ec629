"""A pipeline that takes longer to import than any test waits."""

from __future__ import annotations

import time

from tests.deploy.tiny_pipelines import echo

time.sleep(60.0)
pipeline = echo
