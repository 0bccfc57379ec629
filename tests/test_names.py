"""One word, one meaning: no public class name stands twice, and no retired word comes back."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

import circinus

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = sorted(path for path in Path(circinus.__file__).parent.iterdir() if path.is_symlink())
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@cache
def shipped() -> tuple[tuple[str, ast.Module], ...]:
    paths = (path for folder in FOLDERS for path in sorted(folder.resolve().rglob("*.py")))
    return tuple(
        (str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
        if "_pb2" not in path.name
    )


@cache
def public_classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path, module in shipped():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return found


def test_no_public_class_name_stands_twice() -> None:
    classes = public_classes()
    assert len(classes) > 300
    assert {name: paths for name, paths in classes.items() if len(paths) > 1} == {}


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading of the glossary, without its first two lines."""
    text = GLOSSARY.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize("row", rows("In code"), ids=lambda row: row[0])
def test_a_word_of_the_glossary_is_the_class_that_it_names(row: list[str]) -> None:
    word, named = row[0], re.findall(r"`([\w.]+)\.(\w+)`", row[1])
    assert named, word
    assert f"\n| {word}" in GLOSSARY or f", {word}" in GLOSSARY
    for module, name in named:
        assert hasattr(import_module(f"circinus.{module}"), name)
        assert public_classes()[name] in ([f"{module.replace('.', '/')}.py"], [])


@cache
def names_in_code() -> frozenset[tuple[str, str]]:
    return frozenset(
        (path, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
        for path, module in shipped()
        for node in ast.walk(module)
        for name in [getattr(node, "name", None) or getattr(node, "id", None)]
        if isinstance(name, str)
    )


@pytest.mark.parametrize("row", rows("Retired"), ids=lambda row: row[0])
def test_a_retired_word_is_no_name_in_code(row: list[str]) -> None:
    words = re.compile(rf"(?:^|_)(?:{'|'.join(row[0].split(', '))})(?:_|s?$)", re.IGNORECASE)
    assert [found for found in names_in_code() if words.search(found[1])] == []


def named_in_backticks() -> set[str]:
    """Dotted names below our packages, in pages, comments and docstrings."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    code = [path for folder in FOLDERS for path in folder.resolve().rglob("*.py")]
    packages = "|".join(folder.name for folder in FOLDERS)
    pattern = re.compile(rf"`(?:circinus\.)?((?:{packages})(?:\.\w+)+)[`:(]")
    texts = (p.read_text(encoding="utf-8") for p in [*pages, *code] if p.name != "CHANGELOG.md")
    return {name for text in texts for name in pattern.findall(text)}


def test_a_name_in_backticks_is_a_module_or_something_in_one() -> None:
    names = named_in_backticks()
    assert len(names) > 80
    files = {name: ROOT.joinpath(*name.split(".")) for name in names}
    # not imported where the file says it: gpytorch and the like take seconds
    others = {
        name for name, at in files.items() if not (at.is_dir() or at.with_suffix(".py").exists())
    }
    wrong = set()
    for name in others:
        try:
            resolve_name(f"circinus.{name}")
        except (ImportError, AttributeError):
            wrong.add(name)
    assert wrong == set()


EVERYDAY = {
    *("asked", "came", "found", "gave", "given", "got", "hear", "heard", "hearing", "kept"),
    *("lately", "said", "says", "seen", "shown", "told", "took", "went"),
}
PUBLIC = {  # fields of bodies and files that docs/ shows, columns of studies, HTTP's own word
    "api/schemas/deployments.py": "LatelyView lately",
    "api/schemas/labels.py": "given",
    "api/schemas/pools.py": "seen",
    "api/schemas/routes.py": "lately",
    "api/schemas/schedule.py": "lately",
    "api/store/records.py": "NotFound",
    "planner/search/result.py": "seen_to_draw",
    "studies/dispatch/pool_change.py": "told_after seen",
    "studies/planning/drift.py": "cold_found replanned_found",
    "studies/planning/ground_truth.py": "Shown shown",
    "studies/planning/report.py": "found",
    "studies/planning/study.py": "found shown",
    "studies/pool/calibration.py": "said",
    "studies/pool/study.py": "found not_found",
}


PUBLIC_KEYWORDS = {"NOT_FOUND", "seen_to_draw", "told"}  # of HTTP, of a file, of `Client.wait`


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def test_no_function_class_module_or_field_has_an_everyday_participle_for_a_name() -> None:
    everyday: dict[str, str] = {}
    for path, module in shipped():
        names = [Path(path).stem]
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(node.name)
            if isinstance(node, ast.ClassDef):
                fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                names += [field.id for field in fields if isinstance(field, ast.Name)]
        if plain := [name for name in dict.fromkeys(names) if words_of(name) & EVERYDAY]:
            everyday[path] = " ".join(plain)
    assert everyday == PUBLIC


def test_no_variable_and_no_parameter_is_named_by_an_everyday_participle() -> None:
    everyday = {
        (path, name)
        for path, module in shipped()
        for node in ast.walk(module)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        for name in [(node.arg if isinstance(node, ast.arg) else node.id).lstrip("_")]
        if words_of(name) & EVERYDAY and name not in PUBLIC_KEYWORDS
    }
    assert {name for name in everyday if name[1] not in PUBLIC.get(name[0], "").split()} == set()


def test_no_docstring_begins_with_give() -> None:
    docstrings = (
        (path, node.name, ast.get_docstring(node) or "")
        for path, module in shipped()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    # What gives something up, back or to nobody does give.
    giving = [(path, name) for path, name, text in docstrings if re.match(r"Gives? ", text)]
    assert len(giving) <= 8
