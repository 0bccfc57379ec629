"""The way to a cluster, in kopf's terms."""

from __future__ import annotations

import pytest
from kubernetes.client import ApiClient, Configuration

from circinus.api.operator.controller import connection_of
from circinus.deploy.kubernetes.api import Cluster


@pytest.mark.parametrize("prefix", ["Bearer", "bearer"])  # the client's own words differ
def test_the_token_is_given_bare(prefix: str) -> None:
    configuration = Configuration(host="https://host", api_key={"BearerToken": "t"})
    configuration.api_key_prefix = {"BearerToken": prefix}
    client = ApiClient(configuration)
    assert connection_of(Cluster(client)).token == "t"
    assert connection_of(Cluster(client)).server == "https://host"


def test_a_client_without_a_token_shows_none() -> None:
    assert connection_of(Cluster(ApiClient(Configuration(host="http://host")))).token is None
