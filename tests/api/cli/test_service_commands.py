"""Commands that talk to a service, without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.cli.commands import NOWHERE, assert_refused, invoke
from tests.api.malformed import Wrong, as_yaml, query


def test_a_malformed_file_is_not_submitted(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(as_yaml(query(weight=0)))
    result = invoke("submit", "wrong.yaml", "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "weight", "must be >= 0.001", "0"))


@pytest.mark.parametrize(("command", "field"), [("serve", "method"), ("demo", "--method")])
def test_an_unknown_method_starts_no_service(command: str, field: str) -> None:
    result = invoke(command, "--method", "best")
    assert_refused(result, Wrong("", None, field, "must be among default, published", "best"))


def test_what_a_service_cannot_start_with_is_told_before_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CIRCINUS_EXECUTOR", "in-process")
    result = invoke("serve")
    assert_refused(result, Wrong("", None, "executor", "must be pool, worker:TIER", "in-process"))
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["submit", "good.yaml"],
        ["status"],
        ["status", "q-1"],
        ["cancel", "q-1"],
        ["plans", "q-1"],
        ["export", "q-1"],
        ["request", "q-1", "--example", "0"],
        ["undeploy", "q-1"],
        ["schedule"],
        ["emulate"],
        ["replan", "q-1"],
        ["pool", "apply", "q-1", "edge/small=1"],
        ["pool", "show", "q-1"],
        ["pool", "drop", "q-1"],
    ],
    ids=" ".join,
)
def test_without_a_service_a_command_ends_in_1_and_says_so(arguments: list[str]) -> None:
    result = invoke(*arguments, "--url", NOWHERE)
    assert result.exit_code == 1
    assert f"no service answers at {NOWHERE}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("identifier", ["../plans", "a/b", "q 1", "", "q?x", "é"])
def test_an_id_cannot_reach_another_route(identifier: str) -> None:
    result = invoke("status", identifier, "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "id", "must be the id of a query or plan", ""))


@pytest.mark.parametrize(
    "text",
    ["edge", "edge=1", "/small=1", "edge/=1", "edge/small=", "edge/small=-1", "edge/small=x"],
)
def test_a_malformed_pool_is_not_sent(text: str) -> None:
    result = invoke("pool", "apply", "q-1", text, "--url", NOWHERE)
    rule = "must be TIER/TYPE=N, each type once"
    assert_refused(result, Wrong("", None, "TIER/TYPE=N", rule, text))


def test_a_type_of_a_pool_is_named_once_and_in_range() -> None:
    result = invoke("pool", "apply", "q-1", "e/s=1", "e/s=2", "--url", NOWHERE)
    rule = "must be TIER/TYPE=N, each type once"
    assert_refused(result, Wrong("", None, "TIER/TYPE=N", rule, "e/s=2"))
    result = invoke("pool", "apply", "q-1", "e/s=1001", "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "slices.e.s", "must be <= 1000", "1001"))


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://a:b"])
def test_a_malformed_address_ends_in_2(url: str) -> None:
    result = invoke("status", "--url", url)
    assert_refused(result, Wrong("", None, "url", "must be a URL", ""))


@pytest.mark.parametrize(
    ("options", "field", "rule"),
    [
        ([], "--input or --example", "must be given"),
        (
            ["--example", "0", "--input", "1"],
            "--input",
            "must be given, or --example, but not both",
        ),
        (["--example", "-1"], "example.index", "must be >= 0"),
        (["--example", "500"], "example.index", "must be less than count"),
        (["--input", "{torn"], "--input", "must be JSON or @FILE"),
        (["--input", '{"a": 1, "a": 2}'], "--input", "must name every field once"),
        (["--input", "1e999"], "--input", "must have finite numbers"),
        (["--input", "@absent.json"], "--input", "must be JSON or @FILE"),
        (["--input", "1", "--timeout", "nan"], "timeout_s", "must be finite"),
    ],
)
def test_a_malformed_request_is_not_sent(options: list[str], field: str, rule: str) -> None:
    result = invoke("request", "q-1", "--url", NOWHERE, *options)
    assert_refused(result, Wrong("", None, field, rule, ""))


def test_watching_needs_an_id() -> None:
    result = invoke("status", "--watch", "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "--watch", "must come with the id of a query", ""))


@pytest.mark.parametrize(
    ("link", "field"),
    [
        ("device=3", "links[0].between"),
        ("device,edge", "TIER,TIER=MBIT/S"),
        ("device,edge=fast", "TIER,TIER=MBIT/S"),
        ("device,edge=0", "links[0].bandwidth_mbit_per_s"),
        ("device,edge=5,-1", "links[0].delay_s"),
    ],
)
def test_a_malformed_link_is_not_sent(link: str, field: str) -> None:
    result = invoke("emulate", link, "--url", NOWHERE)
    assert_refused(result, Wrong("", None, field, "must", ""))
