"""The machine, and what pipelines need on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.cli.commands import NOWHERE, assert_refused, invoke
from tests.api.malformed import Wrong


def test_doctor_tells_what_it_found() -> None:
    result = invoke("doctor", "--json", "--url", NOWHERE)
    found = json.loads(result.stdout)
    names = [check["name"] for check in found["checks"]]
    assert {"Python", "packages", "cores", "cache folder", "port", "shares"} <= set(names)
    assert "pipeline digits" in names
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["service"] == "note"
    assert result.exit_code == (0 if found["ready"] else 1)


def test_doctor_tells_the_method_and_refuses_an_unknown_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CIRCINUS_METHOD", "best")
    result = invoke("doctor", "--json", "--url", NOWHERE)
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert "must be among default, published" in checks["settings"]["detail"]
    monkeypatch.setenv("CIRCINUS_METHOD", "published")
    result = invoke("doctor", "--json", "--url", NOWHERE)
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["method"]["detail"] == (
        "planned by published: cmbo, t_test, stratified order; "
        "scheduled by greedy; dispatched by kairos"
    )


def test_doctor_names_what_is_wrong_with_settings_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CIRCINUS_TOKEN", "secret-of-many-letters")
    monkeypatch.setenv("CIRCINUS_MOST_USD_PER_HOUR", "5")
    result = invoke("doctor", "--json", "--url", NOWHERE)
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["settings"]["detail"].startswith("most_usd_per_hour must be left out unless")
    assert "secret" not in result.output


def kubeconfig(folder: Path, server: str) -> Path:
    """Write the way to an API server."""
    named = {"name": "x"}
    file = folder / "kubeconfig"
    document = {
        "current-context": "x",
        "clusters": [{**named, "cluster": {"server": server}}],
        "users": [{**named, "user": {"token": "t"}}],
        "contexts": [{**named, "context": {"cluster": "x", "user": "x"}}],
    }
    file.write_text(json.dumps(document))
    return file


def test_doctor_says_that_a_cluster_does_not_answer_and_what_to_see_to(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, NOWHERE)

    result = invoke("doctor", "--cluster", "--json", "--kubeconfig", str(file))
    (found,) = json.loads(result.stdout)["checks"]
    shown = invoke("doctor", "--cluster", "--kubeconfig", str(file))

    assert result.exit_code == shown.exit_code == 1
    assert (found["name"], found["state"]) == ("API server", "fail")
    assert "the cluster does not answer" in found["detail"]
    assert "KUBECONFIG" in found["remedy"]
    assert "Traceback" not in result.output + shown.output
    assert "-> see to the way there" in " ".join(shown.stdout.split())


def test_doctor_refuses_values_and_ways_that_are_wrong(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("deployment: {target: moon}")
    file = str(kubeconfig(tmp_path, NOWHERE))

    result = invoke("doctor", "--cluster", "--kubeconfig", file, "--values", str(values))
    assert_refused(result, Wrong("", None, "deployment.target", "must be among local", "moon"))
    result = invoke("doctor", "--cluster", "--kubeconfig", f"{file}-not-there")
    assert_refused(result, Wrong("", None, "kubeconfig", "must lead to a cluster", "not-there"))


def test_preparing_an_unknown_pipeline_ends_in_2() -> None:
    result = invoke("prepare", "cats")
    assert_refused(result, Wrong("", None, "pipeline", "must be registered", "cats"))


@pytest.fixture
def with_a_broken_pipeline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed beside the others, as a package of somebody else's would be."""
    installed = folder / "broken_pipelines-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken-pipelines\nVersion: 1\n"
    )
    (installed / "entry_points.txt").write_text(
        "[circinus.pipelines]\nbroken = my_pipelines:broken\n"
    )
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("with_a_broken_pipeline")
def test_a_pipeline_that_raises_is_listed_with_its_reason_beside_the_others() -> None:
    result = invoke("pipelines", "--json")
    assert result.exit_code == 0, result.output
    found = {one["name"]: one for one in json.loads(result.stdout)}
    assert set(found) >= {"broken", "digits", "ocr", "retrieval", "speech", "tracking"}
    assert found["digits"]["available"] is True
    assert found["digits"]["missing"] == []
    assert found["broken"]["available"] is False
    assert "RuntimeError: no weights" in found["broken"]["missing"][0]["name"]


@pytest.mark.usefixtures("with_a_broken_pipeline")
def test_doctor_notes_a_pipeline_that_raises_and_is_ready_all_the_same() -> None:
    result = invoke("doctor", "--json", "--url", NOWHERE)
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["pipeline broken"]["state"] == "note"
    assert "no weights" in checks["pipeline broken"]["detail"]


def test_pipelines_are_listed_with_operators_knobs_and_configurations() -> None:
    text = " ".join(invoke("pipelines").stdout.split())
    assert "sampler (stride, scale) >" in text
    assert "2016" in text


def test_a_pipeline_is_shown_with_the_values_of_its_knobs() -> None:
    result = invoke("pipelines", "show", "digits")
    assert "digits: fraction of digits read, 2016 configurations" in result.stdout
    assert "tree, logreg, knn, svm, rf100, mlp, cnn" in result.stdout
    assert "available here" in result.stdout


def test_an_unknown_pipeline_cannot_be_shown() -> None:
    result = invoke("pipelines", "show", "cats")
    assert_refused(result, Wrong("", None, "pipeline", "must be registered", "cats"))
