"""What the pages say exists, and what exists is in the pages."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DECISIONS = sorted(ROOT.glob("docs/adr/[0-9]*.md"))
OWN = "docs/own-pipelines.md"
LONGEST_LINE = 140
SECTIONS = ["Context", "Decision", "Rejected", "Consequences", "How we will notice it was wrong"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(*names: str) -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def blocks(language: str, *names: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(*names), re.MULTILINE | re.DOTALL)


# --- The command line ----------------------------------------------------------------


@cache
def commands() -> dict[str, Any]:
    """Every command by its full name, such as `circinus study trace`."""
    from circinus.api.cli import app

    return dict(walk("circinus", typer.main.get_command(app)))


def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - click's or typer's
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    if command.invoke_without_command:  # a group that is a command, too
        yield name, command
    for child in command.list_commands(None):
        yield from walk(f"{name} {child}", command.get_command(None, child))


def test_every_command_has_help() -> None:
    found = commands()

    assert found
    assert [name for name, command in found.items() if not (command.help or "").strip()] == []


def test_every_option_of_every_command_has_help() -> None:
    silent = [
        f"{name} {parameter.name}"
        for name, command in commands().items()
        for parameter in command.params
        if not (getattr(parameter, "help", "") or "").strip()
    ]

    assert silent == []


def test_every_command_is_in_the_pages() -> None:
    text = read("README.md", *map(relative, ROOT.glob("docs/*.md")))

    assert [name for name in commands() if not re.search(rf"{name}\b", text)] == []


def test_every_command_of_the_readme_and_the_tutorial_exists() -> None:
    text = read("README.md", "docs/tutorial.md")
    listed = re.findall(r"^    (?:[A-Z_]+=\S+ )?(circinus [a-z]+)", text, re.MULTILINE)

    assert len(listed) > 10
    assert set(listed) - set(commands()) == set()


def test_the_readme_is_short_and_no_line_of_a_page_is_too_long() -> None:
    assert len(read("README.md").splitlines()) <= 150
    long = [
        f"{relative(page)}:{number}"
        for page in PAGES
        if "adr" not in page.parts and page.name != "CHANGELOG.md"
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST_LINE
    ]
    assert long == []


def rows_of_the_command_line_page() -> list[tuple[str, list[str]]]:
    """The commands in the table of the page, each with the options that its row names."""
    found = re.findall(r"^\| `(circinus .*)$", read("docs/command-line.md"), re.MULTILINE)
    return [(row.split("`")[0], re.findall(r"(?<![\w-])--[a-z0-9-]+", row)) for row in found]


def named_by(usage: str) -> str:
    """The longest command that a usage such as `circinus pipelines show NAME` begins with."""
    return max((name for name in commands() if f"{usage} ".startswith(f"{name} ")), key=len)


def test_the_page_of_the_command_line_lists_exactly_the_commands_there_are() -> None:
    listed = {named_by(usage) for usage, _ in rows_of_the_command_line_page()}

    assert listed == set(commands())


def test_the_page_of_the_command_line_names_only_options_that_there_are() -> None:
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands().items()
    }
    unknown = [
        (usage, option)
        for usage, named in rows_of_the_command_line_page()
        for option in named
        if option not in options[named_by(usage)]
    ]

    assert unknown == []


def test_the_page_of_the_command_line_lists_exactly_the_exit_codes_there_are() -> None:
    from circinus.api.cli.command import ExitCode

    listed = re.findall(r"^\| (\d+) \|", read("docs/command-line.md"), re.MULTILINE)

    assert [int(code) for code in listed] == [code.value for code in ExitCode]


# --- HTTP ----------------------------------------------------------------------------


def served_routes() -> set[str]:
    from circinus.api.http.app import application
    from circinus.api.settings import Settings

    paths: dict[str, dict[str, Any]] = application(Settings()).openapi()["paths"]
    return {
        f"{method.upper()} {anonymous(path)}"
        for path, methods in paths.items()
        for method in methods
    }


def documented_routes() -> set[str]:
    found = re.findall(r"^- `([A-Z]+) (/\S*)`", read("docs/http.md"), re.MULTILINE)
    return {f"{method} {anonymous(path)}" for method, path in found}


def anonymous(path: str) -> str:
    """The path without the names of its parameters: pages write `{id}`, code is longer."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_the_http_page_lists_exactly_the_routes_that_are_served() -> None:
    assert documented_routes() == served_routes()


# --- The pages themselves ------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_a_page_links_only_to_what_exists(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]

    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/contributing-map.md"])
def test_a_page_of_the_house_names_only_files_and_folders_that_are_there(page: str) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", read(page))

    assert len(named) > 30
    ends = ("", ".py")
    there = {name for name in named if any((ROOT / (name + end)).exists() for end in ends)}
    assert set(named) - there == set()


def test_what_the_architecture_says_decides_is_in_the_file_that_it_names() -> None:
    table = (
        read("docs/architecture.md").partition("## Where is it decided?")[2].partition("\n## ")[0]
    )
    rows = [row.split("|")[2:4] for row in table.splitlines() if row.startswith("| ")][1:]

    assert len(rows) > 10
    for files, names in rows:
        code = "\n".join(read(file) for file in re.findall(r"`([^`]+)`", files))
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert re.search(rf"(def|class) {name}\b", code), name


def ways() -> dict[str, str]:
    """Return the sections of the architecture that say which way something goes."""
    page = read("docs/architecture.md")
    return {
        name: page.partition(f"## The way of a {name}")[2].partition("\n## ")[0]
        for name in ("query", "request")
    }


def test_the_ways_name_classes_that_are_there() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("api", "deploy", "pipelines", "planner", "scheduler")
        for path in (ROOT / folder).rglob("*.py")
    )
    named = [name for way in ways().values() for name in re.findall(r"`([A-Z]\w+)`", way)]

    assert len(named) > 15
    assert [name for name in named if f"\nclass {name}" not in code] == []


@pytest.mark.parametrize(
    ("name", "most_files", "most_types"), [("query", 50, 24), ("request", 14, 3)]
)
def test_the_way_through_the_house_is_short(name: str, most_files: int, most_types: int) -> None:
    way = ways()[name]

    assert 10 < len(set(re.findall(r"`([\w/]+\.py)`", way))) <= most_files
    assert 0 < len(set(re.findall(r"`([A-Z][a-z]\w+)`", way))) <= most_types


@pytest.mark.parametrize("decision", DECISIONS, ids=relative)
def test_a_decision_has_its_sections_and_is_in_the_index(decision: Path) -> None:
    text = decision.read_text(encoding="utf-8")

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert f"({decision.name})" in read("docs/adr/README.md")


@pytest.mark.parametrize("name", ["shout.py", "cased.py"], ids=["declared", "from LangChain"])
def test_a_pipeline_of_the_page_runs(name: str, tmp_path: Path) -> None:
    from circinus.pipelines.execution.pipeline import Pipeline
    from circinus.pipelines.model.configuration import ConfigurationSpace

    path = tmp_path / name
    (source,) = (s for s in blocks("python", OWN) if s.startswith(f"# {name}\n"))
    path.write_text(source, encoding="utf-8")
    pipeline = runpy.run_path(str(path))["pipeline"]
    assert isinstance(pipeline, Pipeline)
    assert pipeline.examples is not None
    space = ConfigurationSpace(pipeline.graph)
    scores = [
        pipeline.score_of(pipeline.run(example.input, space.configuration(n)), example.expected)
        for n in range(space.size)
        for example in pipeline.examples(3, 1).examples
    ]

    assert space.size > 1
    assert {min(scores), max(scores)} == {0.0, 1.0}  # the choice matters, and one is right


def test_the_query_in_the_readme_is_a_query() -> None:
    from circinus.api.schemas.query import QueryRequest, to_query

    (source,) = blocks("yaml", "README.md")
    query = to_query(QueryRequest.model_validate(yaml.safe_load(source)))

    assert query.pipeline == "digits"
    assert query.slo.latency_statistic == "p95"


def test_the_page_for_operators_names_events_and_metrics_that_there_are() -> None:
    page = read("docs/operating.md")
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("api", "deploy")
        for path in (ROOT / folder).rglob("*.py")
    )
    rows = re.findall(r"^- ((?:`[a-z]+\.[a-z_]+`(?:, )?)+):", page, re.MULTILINE)
    events = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert len(events) > 8
    assert {name for name in events if f'"{name.removesuffix("_over")}"' not in code} == set()
    metrics = set(re.findall(r"circinus_(?:dispatch|lately)_\w+", page))
    assert len(metrics) > 5
    known = read("docs/http.md")
    assert {name for name in metrics if f"_{name.split('_', 2)[2]}`" not in known} == set()


def test_the_worked_example_of_an_infrastructure_can_be_checked_by_hand() -> None:
    from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict

    source, devices, _ = blocks("yaml", "docs/infrastructure.md")
    assert len(infrastructure_from_dict(yaml.safe_load(source + devices)).devices) == 1 + 100
    plant = infrastructure_from_dict(yaml.safe_load(source))
    text = read("docs/infrastructure.md")
    prices = [plant.tier(name).price_usd_per_hour for name in ("device", "site")]
    assert f"= ${0.55 * prices[0] + 0.15 * prices[1]:g} an hour" in text
    assert f"2 / {plant.tier('site').speed_factor:g} = 4 ms" in text
    clip = 86_000
    ways = [plant.route("device", tier) for tier in ("site", "gpu")]
    taken = [way.delay_s + clip * way.s_per_byte for way in ways]
    assert f"= {taken[0] * 1e3:.1f} ms to the site" in text
    assert f"= {(taken[1] - taken[0]) * 1e3:.1f} ms" in text


def test_the_example_of_gpus_gives_the_share_that_is_told() -> None:
    from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict

    _, _, source = blocks("yaml", "docs/infrastructure.md")
    assert infrastructure_from_dict(yaml.safe_load(source)).tier("gpu").share_steps == (5,)
    assert "above, a quarter" in read("docs/infrastructure.md")


def test_every_setting_of_the_service_is_in_its_page_with_its_name_in_the_environment() -> None:
    from circinus.api.settings import Settings

    documented = re.findall(r"^- `(CIRCINUS_[A-Z_]+)`", read("docs/service.md"), re.MULTILINE)

    assert sorted(documented) == sorted(f"CIRCINUS_{n.upper()}" for n in Settings.model_fields)


def test_the_reference_has_everything_that_users_import() -> None:
    import circinus

    listed = re.findall(r"^::: circinus\.(\w+)$", read("docs/reference.md"), re.MULTILINE)

    assert sorted(listed) == sorted(set(circinus.__all__) - {"__version__"})


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Return" in (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")


def test_make_help_lists_every_target() -> None:
    makefile = read("Makefile")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    described = re.findall(r"^## ([a-z-]+): ", makefile, re.MULTILINE)

    assert sorted(described) == sorted(phony.split())


# --- The built-in pipelines ----------------------------------------------------------

BUILT_IN = ("digits", "ocr", "retrieval", "speech", "tracking")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_pipeline_has_a_query_in_the_examples(name: str) -> None:
    from circinus.api.query_file import query_of, read_document
    from circinus.api.schemas.query import to_query
    from circinus.pipelines.io.presets import PRESETS
    from circinus.pipelines.model.query import fitted
    from circinus.pipelines.registry import load_pipeline

    request = query_of(read_document(ROOT / "examples" / f"{name}.yaml"))
    assert request.pipeline == name
    fitted(to_query(request), load_pipeline(name).graph, PRESETS["local"])  # raises what is wrong


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_page_of_the_pipelines_tells_every_knob_with_its_values(name: str) -> None:
    from circinus.pipelines.model.configuration import ConfigurationSpace
    from circinus.pipelines.registry import load_pipeline

    graph = load_pipeline(name).graph
    (section,) = re.findall(
        rf"^## {name}\n(.*?)(?=^## |\Z)", read("docs/pipelines.md"), re.MULTILINE | re.DOTALL
    )
    for slot in graph.slots:
        values = ", ".join(f"{value}" for value in slot.knob.values)
        assert f"| {slot.operator} | {slot.knob.name} | {values} |" in section
    assert f"{ConfigurationSpace(graph).size:,} configurations" in section
    assert f"](pipelines-{name}.svg)" in section
