"""The way to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from circinus.deploy.kubernetes.api import connect
from circinus.pipelines.errors import InvalidInput


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"kubeconfig must lead to a cluster .*nowhere"):
        connect(tmp_path / "nowhere")
