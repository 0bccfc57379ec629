"""Our images for real nodes: built from the Dockerfile with buildah, without engine or registry.

The base is a small Debian with its Python, made once by debootstrap. The Python packages are not
in the images (torch alone is gigabytes): a folder of this machine is mounted read-only instead.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from circinus.pipelines.catalog.digits.classifying import prepare_models, user_folder
from tests.cluster import debian, programs, real_nodes
from tests.cluster.real_nodes import RealNode

BASE = "localhost/circinus-base:test"
SERVICE, WORKER = "docker.io/circinus/service:test", "docker.io/circinus/worker:test"
_TARGETS = {SERVICE: "service-mounted", WORKER: "worker-mounted"}
_MIRROR = "http://deb.debian.org/debian"
_LONGEST_S = 600.0
"""Of one step. Debian's packages come from far away."""
_RELEASE, _PYTHON = "bookworm", (3, 11)
_PACKAGES = "python3,libstdc++6,libgomp1,ca-certificates"
_NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")
_ROOT = Path(__file__).resolve().parents[2]


class NoImages(RuntimeError):
    """This machine cannot make the images, and why."""


def missing() -> str:
    """Say what this machine lacks for building images; empty: nothing."""
    if sys.version_info[:2] != _PYTHON:
        return "images need Python {}.{}, as is in them, here, too.".format(*_PYTHON)
    lacking = debian.lacking(*debian.IMAGES)
    return f"images need more: {lacking}" if lacking else ""


def load(nodes: Sequence[RealNode], folder: Path) -> None:
    """Build both images and put them into the nodes' stores.

    Args:
        nodes: That shall have them.
        folder: For archives, which are large.

    Raises:
        NoImages: If this machine cannot make them, such as without Debian's packages.
    """
    store = programs.cache() / "images"
    store.mkdir(parents=True, exist_ok=True)
    with programs.alone(store / ".lock"):
        try:
            _make_base()
            for name, target in _TARGETS.items():
                _load(name, target, nodes, folder)
        finally:
            real_nodes.unmount_below(store)  # of a build that did not end well


def _load(name: str, target: str, nodes: Sequence[RealNode], folder: Path) -> None:
    options = ["--isolation", "chroot", "--pull-never", "--layers", "--target", target]
    file = str(_ROOT / "deploy" / "images" / "Dockerfile")
    _buildah("bud", *options, "--build-arg", f"BASE={BASE}", "-t", name, "-f", file, str(_ROOT))
    archive = folder / f"{target}.tar"
    archive.unlink(missing_ok=True)
    _buildah("push", "-q", name, f"docker-archive:{archive}:{name}")
    for node in nodes:
        node.load_image(archive)
    archive.unlink()


@contextmanager
def environment(folder: Path) -> Iterator[Path]:
    """Return a folder with this environment's packages and models, as images expect it."""
    packages, cache = folder / "site-packages", folder / "cache" / "circinus" / "digits"
    packages.mkdir(parents=True)
    prepare_models()
    store = user_folder()
    shutil.copytree(store, cache / store.name)
    for file in cache.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)  # they are of this user alone otherwise
    _run("mount", "--bind", sysconfig.get_paths()["purelib"], str(packages))
    try:
        yield folder
    finally:
        _run("umount", "--lazy", str(packages))


def _make_base() -> None:
    if BASE in _buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        return
    root = programs.cache() / "images" / "debian"
    shutil.rmtree(root, ignore_errors=True)
    packages = f"--include={_PACKAGES}"
    try:
        _run("debootstrap", "--variant=minbase", packages, _RELEASE, str(root), _MIRROR)
    except RuntimeError as error:
        raise NoImages(f"the base of the images cannot be made: {error}") from error
    finally:
        for left in ("proc", "sys"):
            subprocess.run(["umount", str(root / left)], check=False, capture_output=True)
    for folder in _NOT_NEEDED:
        shutil.rmtree(root / folder, ignore_errors=True)
    container = _buildah("from", "scratch").strip()
    _buildah("copy", "-q", container, str(root), "/")
    _buildah("commit", "-q", "--rm", container, BASE)
    shutil.rmtree(root, ignore_errors=True)


def _buildah(*arguments: str) -> str:
    return _run("buildah", *_storage(), *arguments)


@cache
def _storage() -> tuple[str, ...]:
    """Return where images are kept: overlays where the kernel can, else copies of everything."""
    folder = programs.cache() / "images"
    for driver in ("overlay", "vfs"):
        place = folder / driver
        options = ("--root", str(place), "--runroot", str(place / "run"))
        command = ("buildah", *options, "--storage-driver", driver)
        done = subprocess.run([*command, "images"], capture_output=True, check=False)
        if done.returncode == 0:
            return command[1:]
    raise NoImages(f"buildah cannot keep images: {done.stderr.decode().strip()[-500:]}")


def _run(*command: str) -> str:
    words = " ".join(command)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{words}: not done within {_LONGEST_S:g} s") from error
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr.strip()[-2000:]}")
    return done.stdout
