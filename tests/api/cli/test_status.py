"""What `circinus status` tells of queries that wait."""

import json
import threading

import httpx
import pytest
import typer

from circinus.api.cli.command import ExitCode
from circinus.api.cli.queries import status
from circinus.api.client import Client
from circinus.api.text.screen import Screen
from tests.api.client.event_server import AT, EventServer, telling
from tests.api.malformed import query

PHASES = {"q-4": "queued", "q-3": "queued", "q-2": "planning", "q-1": "serving"}  # newest first


def _view(name: str) -> dict[str, object]:
    at = "2026-01-01T00:00:00Z"  # of all: the order of the queue is the list's
    told: dict[str, object] = {"id": name, "request": query(), "phase": PHASES[name]}
    return told | {"submitted_at": at, "updated_at": at}


def _answer(request: httpx.Request) -> httpx.Response:
    name, wanted = request.url.path.rpartition("/")[2], request.url.params.get("phase")
    if name == "schedule":
        return httpx.Response(200, json={"assignments": [], "waiting": [], "tiers": []})
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


def test_watching_asks_when_something_happened_and_not_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: dict[str, object] = {"id": "q-2", "request": query(), "phase": "planning"}
    told |= {"submitted_at": AT, "updated_at": AT}
    with telling(EventServer(serials=[1], query=told)) as server:

        def settle() -> None:
            server.query["phase"] = "infeasible"
            server.serials.append(2)

        threading.Timer(1.5, settle).start()
        with Client(server.url) as client, pytest.raises(typer.Exit) as ended:
            status(Screen(as_json=False), client, "q-2", watch=True)
    assert ended.value.exit_code == ExitCode.INFEASIBLE
    # Where events are, as things are, and as they are after the one thing that happened.
    assert server.fetched == ["/v1/queries/q-2/events", *["/v1/queries/q-2"] * 2]
    assert "q-2  infeasible" in capsys.readouterr().err
