from __future__ import annotations

import os

import pytest

from circinus.deploy.workers.process import without_secrets, worker_environment


def test_workers_get_one_numeric_thread_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("CIRCINUS_TOKEN", "secret")
    monkeypatch.setenv("circinus_database_url", "secret")  # settings are read in any letters
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("CIRCINUS_CACHE", "/somewhere")
    environment = worker_environment()
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert "secret" not in environment.values()
    assert environment["CIRCINUS_CACHE"] == "/somewhere"


def test_what_inherits_the_environment_itself_inherits_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CIRCINUS_TOKEN", "secret")
    with without_secrets():
        assert "CIRCINUS_TOKEN" not in os.environ
    assert os.environ["CIRCINUS_TOKEN"] == "secret"
