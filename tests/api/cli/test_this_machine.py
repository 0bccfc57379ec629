"""The machine, and what pipelines need on it."""

from __future__ import annotations

import json

from tests.api.cli.commands import NOWHERE, assert_refused, invoke
from tests.api.malformed import Wrong


def test_doctor_tells_what_it_found() -> None:
    result = invoke("doctor", "--json", "--url", NOWHERE)
    found = json.loads(result.stdout)
    names = [check["name"] for check in found["checks"]]
    assert {"Python", "packages", "cores", "cache folder", "port", "shares"} <= set(names)
    assert "pipeline digits" in names
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["service"] == "note"
    assert result.exit_code == (0 if found["ready"] else 1)


def test_preparing_an_unknown_pipeline_ends_in_2() -> None:
    result = invoke("prepare", "cats")
    assert_refused(result, Wrong("", None, "pipeline", "must be registered", "cats"))
