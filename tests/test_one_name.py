"""Every module of ours has one name, below `circinus`."""

import json
import subprocess
import sys
from pathlib import Path

import circinus

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = sorted(
    path.name for path in Path(circinus.__file__).parent.iterdir() if path.is_symlink()
)

_LOADED = """
import importlib, json, pkgutil, sys
from importlib.util import find_spec
import circinus
skipped = ("circinus.api.store.migrations.", "circinus.api.cli.__main__")
missing = {"ray": find_spec("ray"), "botorch": find_spec("botorch")}
for found in pkgutil.walk_packages(circinus.__path__, "circinus."):
    if not found.name.startswith(skipped):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if missing.get((error.name or "").partition(".")[0], ...) is not None:
                raise
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
json.dump(files, sys.stdout)
"""


def _files() -> dict[str, Path]:
    # In a process of its own, which has our folders on its path as a script beside them would.
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, cwd=ROOT, check=True
    )
    told: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return {name: Path(file).resolve() for name, file in told.items() if file is not None}


def test_no_module_is_loaded_under_two_names() -> None:
    names: dict[Path, set[str]] = {}
    for name, file in _files().items():
        if file.is_relative_to(ROOT) and file.exists() and ".venv" not in file.parts:
            names.setdefault(file, set()).add(name)
    assert len(names) > 100
    assert {str(file): found for file, found in names.items() if len(found) > 1} == {}
    wrong = {
        name for found in names.values() for name in found if name.split(".")[0] != "circinus"
    }
    assert wrong == set()


def test_circinus_links_to_every_folder_of_the_top_level_that_holds_packages() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"circinus", "tests"}
    assert set(FOLDERS) == packages


def test_this_process_knows_our_folders_below_circinus_only() -> None:
    assert [name for name in sys.modules if name.partition(".")[0] in FOLDERS] == []
