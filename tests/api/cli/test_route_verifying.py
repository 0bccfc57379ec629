"""`circinus route verify`, with units that are HTTP servers of this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from circinus.api.cli.options import probes_here
from circinus.api.schemas.routes import RouteInput, VerifyInput
from circinus.api.schemas.violations import checked
from circinus.api.use_cases.route_files import unit_urls
from circinus.deploy.routes.probing import EndpointProbes
from circinus.pipelines.errors import InvalidInput
from tests.api.cli.commands import NOWHERE, invoke
from tests.api.cli.test_route_cluster import unit
from tests.deploy.answering_server import AnsweringServed, answering

METRICS = """
def near(output, expected):
    return max(0.0, 1.0 - abs(output - expected))

def percent(output, expected):
    return 100 * near(output, expected)

def raising(output, expected):
    raise ValueError("no such thing")

number = 3
"""
PROBES = [{"input": {"n": i}, "expected": i + 1} for i in range(4)]


@pytest.fixture
def route(folder: Path) -> Path:
    (folder / "my_metrics.py").write_text(METRICS)
    lines = "\n".join(json.dumps(each) for each in PROBES)
    (folder / "probes.jsonl").write_text(lines)
    return written(folder)


def written(folder: Path, **changes: object) -> Path:
    units = [{**unit(name), "kubernetes": None} for name in ("first", "second")]
    document = {"name": "r", "demand_per_s": 1.0, "latency_s": 0.9, "units": units}
    path = folder / "route.yaml"
    path.write_text(yaml.safe_dump(document | changes))
    return path


@pytest.fixture
def served() -> Iterator[Callable[..., AnsweringServed]]:
    with ExitStack() as stack:

        def serve(answer: Callable[[Any], object], status: int = 200) -> AnsweringServed:
            return stack.enter_context(answering(answer, status))

        yield serve


def right(given: Any) -> object:  # noqa: ANN401 - JSON
    return given["n"] + 1


def off(by: float, n: int = 0) -> Callable[[Any], object]:
    """Right, but for one input."""
    return lambda given: given["n"] + 1 + (by if given["n"] == n else 0)


def verify(route: Path, first: str, second: str, *more: str) -> Result:
    urls = ("--url", f"first={first}/", "--url", f"second={second}/")
    return invoke("route", "verify", str(route), "--probes", "probes.jsonl", *urls, *more)


def units(done: Result) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(done.stdout)["units"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "unit first.kubernetes must be given, or --url first=URL, got None"),
        (["--url", f"first={NOWHERE}"], "unit second.kubernetes must be given, or --url second"),
        (["--url", f"third={NOWHERE}"], "--url must be among first, second, got 'third'"),
        (["--url", "first"], "--url must be UNIT=URL, each unit once, got 'first'"),
        (["--url", "first=ftp://a"], "--url first must be of http or https, got 'ftp://a'"),
        (["--url", "first=http://a:b/"], "--url first must be of http or https"),
        (["BOTH", "--metric", "near"], "--metric must be module:function, got 'near'"),
        (["BOTH", "--metric", "nowhere:near"], "--metric must be importable (ModuleNotFound"),
        (["BOTH", "--metric", "my_metrics:far"], "--metric must be importable (AttributeError"),
        (["BOTH", "--metric", "my_metrics:number"], "--metric must name a function"),
        (["BOTH", "--tolerance", "1.01"], "--tolerance must be in [0, 1], got 1.01"),
        (["BOTH", "--probes", "none.jsonl"], "--probes must be a readable file (No such file"),
    ],
)
def test_what_cannot_be_asked_ends_in_2_and_says_why(
    route: Path, arguments: list[str], message: str
) -> None:
    both = [part for name in ("first", "second") for part in ("--url", f"{name}={NOWHERE}")]
    given = [
        *(both if "BOTH" in arguments else []),
        *(each for each in arguments if each != "BOTH"),
    ]
    probes = [] if "--probes" in given else ["--probes", "probes.jsonl"]
    done = invoke("route", "verify", str(route), *probes, *given)
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told) == (2, True), told


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "must have 1 to"),
        ('{"input": 1}', "line 1: example must be a JSON object with exactly input and expected"),
        ('{"input": 1, "expected": 1}\nno', "line 2: example must be a JSON object"),
        ('{"input": NaN, "expected": 1}', "line 1: example"),
    ],
)
def test_a_file_of_probes_that_has_none_ends_in_2_and_names_the_line(
    route: Path, lines: str, message: str
) -> None:
    (route.parent / "probes.jsonl").write_text(lines)
    done = verify(route, NOWHERE, NOWHERE)
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told, "probes.jsonl" in told) == (2, True, True), told


def test_a_route_that_verifies_nothing_ends_in_2(route: Path) -> None:
    done = verify(written(route.parent, verify={"probes": 0}), NOWHERE, NOWHERE)
    assert done.exit_code == 2
    assert "verify.probes must be >= 1, got 0" in done.stderr


def test_probes_need_a_tolerance_and_an_example() -> None:
    with pytest.raises(InvalidInput, match="number of probes must be >= 1, got 0"):
        EndpointProbes(examples=[], tolerance=0.0)


def test_a_unit_that_is_not_reached_does_not_agree_and_the_next_one_is_the_reference(
    route: Path, served: Callable[..., AnsweringServed]
) -> None:
    done = verify(route, NOWHERE, served(right).url, "--json")
    assert done.exit_code == 3
    first, second = units(done).values()
    assert (first["agrees"], first["score"], first["reference"]) == (False, None, "second")
    assert first["failed"].startswith(f"probe 1: {NOWHERE}/: ")
    assert (second["agrees"], second["reference"], second["failed"]) == (True, "second", "")


def test_where_no_unit_answers_there_is_no_reference(route: Path) -> None:
    done = verify(route, NOWHERE, NOWHERE)
    assert done.exit_code == 3
    rows = [line.split() for line in done.stdout.splitlines() if "probe 1" in line]
    assert [row[:5] for row in rows] == [
        ["first", "-", "-", "-", "no"],
        ["second", "-", "-", "-", "no"],
    ]


@pytest.mark.parametrize(
    ("answer", "status", "failed"),
    [
        (right, 500, "answered 500"),
        (right, 503, "answered 503"),
        (lambda _: b"<html>", 200, "answer must be JSON"),
        (
            lambda given: "one" if given["n"] == 3 else given["n"] + 1,
            200,
            "probe 4: operator score",
        ),
    ],
)
def test_a_probe_that_fails_is_no_agreement(
    route: Path,
    served: Callable[..., AnsweringServed],
    answer: Callable[[Any], object],
    status: int,
    failed: str,
) -> None:
    other = served(answer, status)
    done = verify(route, served(right).url, other.url, "--json", "--metric", "my_metrics:near")
    assert done.exit_code == 3
    found = units(done)["second"]
    assert (found["agrees"], found["score"], found["difference"]) == (False, None, None)
    assert failed in found["failed"]


@pytest.mark.parametrize(
    ("metric", "cause"),
    [
        ("percent", "must give a score in [0, 1], got 100.0"),
        ("raising", "ValueError: no such thing"),
    ],
)
def test_a_metric_that_gives_no_score_fails_each_unit(
    route: Path, served: Callable[..., AnsweringServed], metric: str, cause: str
) -> None:
    both = (served(right).url, served(right).url)
    done = verify(route, *both, "--json", "--metric", f"my_metrics:{metric}")
    assert done.exit_code == 3
    assert [cause in each["failed"] for each in units(done).values()] == [True, True]


@pytest.mark.parametrize(
    ("by", "tolerance", "code", "told"),
    [
        # of four probes one is wrong by 0.08: the mean is 0.02 below
        (0.08, "0.0201", 0, "-0.020"),
        (0.08, "0.0199", 3, "-0.020"),
        (2.0, "0.25", 0, "-0.250"),
        (0.0, "0", 0, "+0.000"),
    ],
)
def test_the_mean_score_may_be_below_the_firsts_by_the_tolerance(
    route: Path,
    served: Callable[..., AnsweringServed],
    by: float,
    tolerance: str,
    code: int,
    told: str,
) -> None:
    both = (served(right).url, served(off(by)).url)
    more = ("--metric", "my_metrics:near", "--tolerance", tolerance)
    done = verify(route, *both, *more)
    row = next(line.split() for line in done.stdout.splitlines() if "second" in line)
    assert done.exit_code == code
    assert row[2:] == ["first", "1.000", told, "yes" if code == 0 else "no"]


def test_a_unit_may_be_better_than_the_first(
    route: Path, served: Callable[..., AnsweringServed]
) -> None:
    done = verify(route, served(off(1.0)).url, served(right).url, "--json")
    first, second = units(done).values()
    assert (done.exit_code, first["score"], second["score"]) == (0, 0.75, 1.0)
    assert (second["reference_score"], second["difference"]) == (0.75, 0.25)


def test_the_route_says_how_many_probes_and_which_tolerance(
    route: Path, served: Callable[..., AnsweringServed]
) -> None:
    first, second = served(right), served(off(1.0))
    path = written(route.parent, verify={"probes": 2, "tolerance": 0.5})
    done = verify(path, first.url, second.url, "--json")
    # of two probes one is wrong: 0.5
    assert (done.exit_code, json.loads(done.stdout)["probes"]) == (0, 2)
    assert units(done)["second"]["score"] == 0.5
    assert second.asked == [("/", {"n": 0}), ("/", {"n": 1})]


def test_without_a_url_a_unit_is_asked_at_its_service(folder: Path) -> None:
    place = {"gateway": {"name": "public"}, "namespace": "models", "path": "/v1/paint"}
    path = written(folder, kubernetes=place, units=[unit("first"), unit("second")])
    asked = checked(RouteInput, yaml.safe_load(path.read_text()))
    assert unit_urls(asked, {"second": "http://127.0.0.1:9/"}) == {
        "first": "http://m-first.models:8000/v1/paint",
        "second": "http://127.0.0.1:9/",
    }


def test_probes_are_the_first_lines_and_all_where_there_are_fewer(route: Path) -> None:
    file = route.parent / "probes.jsonl"
    assert len(probes_here(file, None, VerifyInput(probes=3)).examples) == 3
    assert len(probes_here(file, None, VerifyInput(probes=8)).examples) == 4
