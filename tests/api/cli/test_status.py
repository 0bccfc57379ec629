"""What `circinus status` tells of queries that wait."""

import json

import httpx
import pytest

from circinus.api.cli.queries import status
from circinus.api.cli.screen import Screen
from circinus.api.client import Client
from tests.api.malformed import query

PHASES = {"q-4": "queued", "q-3": "queued", "q-2": "planning", "q-1": "serving"}  # newest first


def _view(name: str) -> dict[str, object]:
    at = "2026-01-01T00:00:00Z"  # of all: the order of the queue is the list's
    told: dict[str, object] = {"id": name, "request": query(), "phase": PHASES[name]}
    return told | {"submitted_at": at, "updated_at": at}


def _answer(request: httpx.Request) -> httpx.Response:
    name, wanted = request.url.path.rpartition("/")[2], request.url.params.get("phase")
    if name in PHASES:
        return httpx.Response(200, json=_view(name))
    items = [_view(one) for one, phase in PHASES.items() if wanted in (None, phase)]
    return httpx.Response(200, content=json.dumps({"items": items}))


@pytest.mark.parametrize(
    ("name", "told"), [("q-3", "after 1 other\n"), ("q-4", "after 2 others\n")]
)
def test_a_queued_query_waits_for_those_before_it_and_for_what_is_planned_now(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client("http://service", transport=httpx.MockTransport(_answer)) as client:
        status(Screen(as_json=False), client, name)
    assert f"planned {told}" in capsys.readouterr().out


def test_the_list_tells_places_in_the_queue(capsys: pytest.CaptureFixture[str]) -> None:
    with Client("http://service", transport=httpx.MockTransport(_answer)) as client:
        status(Screen(as_json=False), client)
    lines = [line for line in capsys.readouterr().out.splitlines() if "q-" in line]
    assert ["after 2 others" in lines[0], "after 1 other " in lines[1]] == [True, True]
