from __future__ import annotations

import re

import pytest

from circinus.deploy.kubernetes.credentials import (
    CredentialNames,
    NotMade,
    Pair,
    Role,
    authority,
    lasts,
    signed,
)
from circinus.pipelines.errors import InvalidInput


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"days": 0}, "days must be >= 1, got 0."),
        ({"token": ""}, "token must be the name of a Secret, got ''."),
        ({"token": "a/b"}, "token must be the name of a Secret, got 'a/b'."),
        ({"authority": "a" * 254}, "authority must be the name of a Secret"),
        ({"workers": "w"}, "authority must be given with workers or service, got None."),
        ({"service": "s"}, "authority must be given with workers or service, got None."),
    ],
)
def test_names_that_cannot_be_are_told(names: dict[str, str | int], told: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)):
        CredentialNames(**names)  # type: ignore[arg-type]  # wrong on purpose
    CredentialNames(token="a" * 253, authority="a", workers="w", service="s.t", days=1)


def test_what_signs_nothing_is_told() -> None:
    with pytest.raises(NotMade, match="no certificate of circinus-worker can be signed: "):
        signed(Role.WORKERS, Pair(certificate=b"none", key=b"none"), 1)


def test_a_certificate_lasts_as_long_as_it_is_made_for_and_no_text_does() -> None:
    made = signed(Role.SERVICE, authority(), 30)
    assert lasts(made.certificate, 29.9)
    assert not lasts(made.certificate, 30.1)
    assert not lasts(b"none", 0)
