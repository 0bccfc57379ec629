"""Lists of any length come whole, page by page, though their state is forgotten on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.kubernetes.api import PAGE, Cluster, Expired, Object
from circinus.pipelines.errors import Unavailable

PODS = "/api/v1/pods"


class Server(Cluster):
    """Lists as an API server does: a page, and where to go on; a state may be forgotten."""

    def __init__(self, count: int, *, forgets_at: int | None = None) -> None:
        self.count, self.forgets_at = count, forgets_at
        self.asked: list[dict[str, str]] = []

    def listed(self, path: str, **query: str) -> Object:
        assert path == PODS
        self.asked.append(query)
        first = int(query.get("continue", "0"))
        if self.forgets_at is not None and first >= self.forgets_at > 0:
            self.count += 1  # the state of now is another one
            raise Expired(f"GET {path}", "Expired", "The provided continue parameter is too old")
        last = min(first + int(query.get("limit", self.count)), self.count)
        metadata = {
            "resourceVersion": "7",
            **({"continue": f"{last}"} if last < self.count else {}),
        }
        return {"metadata": metadata, "items": list(range(first, last))}


@given(st.integers(0, 40), st.integers(1, 12))
def test_all_come_once_in_their_order_and_no_answer_is_larger_than_a_page(
    count: int, page: int
) -> None:
    server = Server(count)
    found = server.listed_whole(PODS, page, labelSelector="a=b")

    assert found["items"] == list(range(count))
    assert found["metadata"]["resourceVersion"] == "7"
    assert "continue" not in found["metadata"]
    assert len(server.asked) == max(1, -(-count // page))
    assert all(q["limit"] == str(page) and q["labelSelector"] == "a=b" for q in server.asked)


def test_a_list_whose_state_is_forgotten_is_fetched_anew_at_once() -> None:
    server = Server(9, forgets_at=4)
    found = server.listed_whole(PODS, 2, labelSelector="a=b")

    assert found["items"] == list(range(10))  # not what was read of the old state
    assert server.asked[-1] == {"labelSelector": "a=b"}


@pytest.mark.parametrize(
    "error", [Unavailable("busy", retry_after_s=1.0), Expired("GET", "Expired", "from the start")]
)
def test_what_fails_at_its_first_page_fails(error: Exception) -> None:
    class Failing(Server):
        def listed(self, path: str, **query: str) -> Object:
            raise error

    with pytest.raises(type(error)):
        Failing(1).listed_whole(PODS)


def test_a_page_is_what_kubectl_takes() -> None:
    assert PAGE == 500
