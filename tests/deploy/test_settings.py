from __future__ import annotations

import pytest

from circinus.deploy.workers.settings import worker_environment


def test_workers_get_one_numeric_thread_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("CIRCINUS_TOKEN", "secret")
    monkeypatch.setenv("CIRCINUS_CACHE", "/somewhere")
    environment = worker_environment()
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert "CIRCINUS_TOKEN" not in environment
    assert environment["CIRCINUS_CACHE"] == "/somewhere"
