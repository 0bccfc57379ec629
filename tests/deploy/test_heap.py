from __future__ import annotations

import gc

from circinus.deploy.runtime.heap import freeze_heap


def test_what_is_there_is_passed_over_from_then_on() -> None:
    freeze_heap()
    try:
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
