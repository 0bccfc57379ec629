"""`circinus pool`, and what it makes of the answers of a service."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from circinus.api.cli.kubernetes.deploying import plan_of
from circinus.api.cli.pools import apply, drop, show
from circinus.api.client import Client
from circinus.api.text.screen import Screen
from circinus.pipelines.errors import InvalidInput
from tests.api.client.event_server import AT
from tests.api.malformed import query
from tests.api.test_deploying import plan_document

QUERY = {"id": "q-1", "request": query(), "phase": "serving", "plan_id": "p-1"} | {
    "submitted_at": AT,
    "updated_at": AT,
}
POOL = {"query_id": "q-1", "slices": {"edge": {"small": 3, "large": 0}}, "state": "placed"}
MACHINE = {"tier": "edge", "machine": 2, "share": 0.5, "machine_type": "small"}


def answering(**answers: object) -> Client:
    """A client of a service that answers so, by the end of the path."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=answers[request.url.path.rpartition("/")[2].strip("-1")])

    return Client("http://service", transport=httpx.MockTransport(answer))


def test_a_plan_on_a_pool_is_not_rendered_as_if_it_were_the_plans_own() -> None:
    assigned = {"query_id": "q-1", "plan_id": "p-1", "machines": [MACHINE]}
    pool = {"edge": {"small": 1}}

    def schedule(*assignments: object) -> dict[str, object]:
        return {"assignments": assignments, "waiting": [], "tiers": []}

    on_pool = schedule(assigned | {"pool": pool})
    client = answering(q=QUERY, p=plan_document(), schedule=on_pool)
    with client, pytest.raises(InvalidInput, match="pool must be dropped first"):
        plan_of(client, "q-1")
    with answering(q=QUERY, p=plan_document(), schedule=schedule(assigned)) as client:
        assert [at.machine for at in plan_of(client, "q-1").machines] == [2]


def test_what_is_missing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    missing = "1 of 3 slices of 0.5 find no room"
    lacking: dict[str, object] = {**POOL, "state": "lacking", "missing": missing}
    lacking |= {"machines": [MACHINE], "cost_usd_per_hour": 0.5}
    with answering(pool=lacking) as client:
        show(Screen(as_json=False), client, "q-1")
    assert capsys.readouterr().out.splitlines() == [
        "q-1: edge/small=3, lacking",
        "missing: 1 of 3 slices of 0.5 find no room",
        "now on edge / 2 (small): 0.5, $0.5000/h",
    ]


@pytest.mark.parametrize(
    ("ask", "method", "sent"),
    [
        (
            lambda screen, client: apply(screen, client, "q-1", ["edge/small=3", "edge/large=0"]),
            "PUT",
            {"slices": {"edge": {"small": 3, "large": 0}}, "follow": False},
        ),
        (lambda screen, client: drop(screen, client, "q-1"), "DELETE", None),
    ],
    ids=["apply", "drop"],
)
def test_what_is_asked_of_the_service(
    ask: Callable[[Screen, Client], None],
    method: str,
    sent: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=POOL | QUERY)

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        ask(Screen(as_json=False), client)
    (request,) = asked
    assert (request.method, request.url.path) == (method, "/v1/queries/q-1/pool")
    assert (json.loads(request.content) if request.content else None) == sent
    assert capsys.readouterr().out.startswith("q-1: ")
