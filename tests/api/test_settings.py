"""What the operator sets, checked before anything starts."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from api.settings import Settings, is_loopback


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


def test_the_environment_is_read_with_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRCINUS_TOKEN", "hush")
    monkeypatch.setenv("CIRCINUS_EXTRA_PIPELINES", "a:b, c:d")
    settings = Settings()
    assert settings.token_text == "hush"
    assert settings.extra_pipelines == ("a:b", "c:d")
    assert "hush" not in repr(settings)
