"""What the operator sets, checked before anything starts."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from circinus.api.settings import Settings, is_loopback
from circinus.deploy.methods import METHODS


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
def test_without_a_token_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(ValidationError, match="host must be a loopback address"):
        Settings(host=host)
    assert Settings(host=host, token=SecretStr("secret")).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "[::1]"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).token is None


@pytest.mark.parametrize(
    ("name", "value"), [("port", 65536), ("planning_workers", 0), ("lease_s", float("nan"))]
)
def test_a_setting_out_of_range_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize("name", ["scheduling_policy", "dispatch_policy"])
def test_an_unknown_policy_is_refused_with_the_names(name: str) -> None:
    with pytest.raises(ValidationError, match=rf"{name} must be among .*fcfs.*, got 'best'"):
        Settings(**{name: "best"})  # type: ignore[arg-type]  # the point of the test


def test_an_unknown_method_is_refused_with_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRCINUS_METHOD", "best")
    with pytest.raises(
        ValidationError, match="method must be among default, published, got 'best'"
    ):
        Settings()


@pytest.mark.parametrize(
    ("settings", "scheduling", "dispatch"),
    [
        ({}, "priced", "plan_ahead"),
        ({"method": "default"}, "priced", "plan_ahead"),
        ({"method": "published"}, "greedy", "kairos"),
        ({"method": "published", "dispatch_policy": "drs"}, "greedy", "drs"),
        ({"method": "published", "scheduling_policy": "priced"}, "priced", "kairos"),
        ({"scheduling_policy": "greedy", "dispatch_policy": "kairos"}, "greedy", "kairos"),
    ],
)
def test_policies_are_those_of_the_method_unless_they_are_set(
    settings: dict[str, str], scheduling: str, dispatch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"CIRCINUS_{name.upper()}", value)
    chosen = Settings().chosen_method
    assert (chosen.scheduling, chosen.dispatch) == (scheduling, dispatch)
    assert chosen.planning == METHODS[settings.get("method", "default")].planning


def test_the_environment_is_read_with_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRCINUS_TOKEN", "hush")
    monkeypatch.setenv("CIRCINUS_EXTRA_PIPELINES", "a:b, c:d")
    settings = Settings()
    assert settings.token_text == "hush"
    assert settings.extra_pipelines == ("a:b", "c:d")
    assert "hush" not in repr(settings)
