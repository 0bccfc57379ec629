"""Which version of an image runs is known."""

from __future__ import annotations

import pytest

import circinus
from circinus.deploy.kubernetes.names import SERVICE_IMAGE, WORKER_IMAGE, version_of
from circinus.pipelines.errors import InvalidInput

DIGEST = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "image", ["worker", "worker:latest", "registry:5000/worker", "a/worker:", ""]
)
def test_an_image_of_no_version_is_refused(image: str) -> None:
    with pytest.raises(InvalidInput, match="image must have a tag other than latest, or a dig"):
        version_of(image)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("worker:1.2", "1.2"),
        ("registry:5000/circinus/worker:1.2", "1.2"),
        (f"worker@{DIGEST}", "0123456789ab"),
        (f"registry:5000/worker@{DIGEST}", "0123456789ab"),
        (f"worker:1.2@{DIGEST}", "1.2"),
        (f"worker:latest@{DIGEST}", "latest"),  # the digest is what runs
    ],
)
def test_an_image_has_the_version_of_its_tag_or_digest(image: str, version: str) -> None:
    assert version_of(image) == version


def test_what_runs_unless_told_otherwise_is_of_this_version() -> None:
    assert {version_of(WORKER_IMAGE), version_of(SERVICE_IMAGE)} == {circinus.__version__}
