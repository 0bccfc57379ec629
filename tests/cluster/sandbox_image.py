"""The image of the real nodes' sandboxes: one static program, made without a registry.

An image is a tar of layers, a configuration and a manifest.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

NAME = "circinus.test/pause:1"


def write(program: Path, archive: Path) -> None:
    """Write an archive, as `docker save` does, with an image that runs a static program."""
    layer = _tar({"pause": program.read_bytes()})
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": layer,
        "config.json": json.dumps(configuration).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    archive.write_bytes(_tar(files))


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
