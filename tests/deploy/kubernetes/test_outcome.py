from __future__ import annotations

import pytest

from circinus.deploy.kubernetes.api import Absent, Clash, ClusterRefused, Forbidden
from circinus.deploy.kubernetes.outcome import State, in_words, state_of
from circinus.pipelines.errors import CircinusError, Unavailable


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Unavailable("the cluster does not answer", retry_after_s=1.0), State.UNAVAILABLE),
        (Forbidden("PATCH", "Forbidden", "exceeded quota: small"), State.QUOTA),
        (Clash("PATCH", "Conflict", "conflict with somebody"), State.CONFLICT),
        (Forbidden("GET", "Forbidden", 'User "x" cannot list pods'), State.FORBIDDEN),
        (Forbidden("PATCH", "Forbidden", "a webhook denied the request"), State.REFUSED),
        (ClusterRefused("PATCH", "Invalid", "spec: invalid"), State.REFUSED),
        (Absent("GET", "NotFound", 'namespaces "x" not found'), State.NAMESPACE),
        (
            Forbidden("PATCH", "Forbidden", "namespace x is being terminated"),
            State.NAMESPACE,
        ),
        (Absent("GET", "NotFound", 'services "x" not found'), State.REFUSED),
    ],
)
def test_every_answer_is_a_state(error: CircinusError, state: State) -> None:
    assert state_of(error) is state


def test_words_say_what_can_be_done() -> None:
    assert in_words(State.NAMESPACE, "gone") == "gone (create the namespace first)"
    assert in_words(State.REFUSED, "no") == "no"
