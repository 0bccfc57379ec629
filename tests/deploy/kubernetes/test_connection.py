"""The way to a cluster, in the terms of libraries with a client of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.kubernetes.connection import connect, connection_of, make_client
from pipelines.errors import InvalidInput


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"kubeconfig must lead to a cluster .*nowhere"):
        connect(tmp_path / "nowhere")


@pytest.mark.parametrize("prefix", ["Bearer", "bearer"])  # the client's own words differ
def test_the_token_is_given_bare(prefix: str) -> None:
    client = make_client("https://host", token="t")
    client.configuration.api_key_prefix = {"BearerToken": prefix}
    assert connection_of(client).token == "t"
    assert connection_of(client).server == "https://host"


def test_a_client_without_a_token_shows_none() -> None:
    assert connection_of(make_client("http://host")).token is None
