"""Killing the service during planning loses no query and repeats no finished measurement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from circinus.api.store.engine import connect
from circinus.api.store.journal import measurement_counts
from tests.e2e.service_process import ServiceProcess

PATIENT_LIMITS = {"profiling_s": 20.0, "configurations": 8}
# A configuration that misses an accuracy of 1 is given up after its first wrong answer.
MANY_LIMITS = {"profiling_s": 20.0, "configurations": 40}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(tmp_path)
    service.start()
    yield service
    service.stop()


def measured(service: ServiceProcess, query_id: str) -> tuple[int, int]:
    engine = connect(service.database_url)
    try:
        return measurement_counts(engine, query_id)
    finally:
        engine.dispose()


def test_a_killed_service_loses_no_query_and_repeats_no_measurement(
    service: ServiceProcess,
) -> None:
    # An accuracy that no configuration has makes the search measure all of them.
    first = service.submit(limits=MANY_LIMITS, slo={"accuracy": 1.0, "latency_s": 1.0})
    second = service.submit(limits=PATIENT_LIMITS)
    service.wait_for(lambda: measured(service, first)[0] >= 2, "2 measurements")

    orphans = service.kill()

    _, alive = psutil.wait_procs(orphans, timeout=5)
    assert alive == []
    before, _ = measured(service, first)
    service.start()
    service.wait_for_phase(first, "infeasible", "exhausted", "waiting", "deploying", "serving")
    service.wait_for_phase(second, "serving")

    total, again = measured(service, first)
    assert total > before  # it was killed in the middle
    assert again == 0
    assert measured(service, second)[1] == 0
    assert service.query(first)["progress"]["inputs"] == total
