"""What all pages have in common: errors, files, forms, and what browsers are told of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.http.app import application
from circinus.api.http.pages import SECTIONS, STATIC, static_files
from circinus.api.settings import Settings
from tests.api.test_app import LOOPBACK, Connect, assert_problem

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FORM = {"content-type": "application/x-www-form-urlencoded", **BROWSER}
STATIC_FOLDER = Path(__file__).parents[3] / "api/http/ui/static"


@pytest.mark.parametrize("path", ["/nowhere", "/ui/nowhere", "/ui/queries/q-0", "/ui/queries/<b>"])
def test_what_is_not_there_is_a_page_for_browsers_alone(connect: Connect, path: str) -> None:
    client = connect()
    shown = client.get(path, headers=BROWSER)
    assert shown.status_code == 404
    assert "<h1>Not" in shown.text
    assert 'role="alert"' in shown.text
    assert "<b>" not in shown.text
    assert_problem(client.get(path), 404)
    part = client.get(path, headers={"hx-request": "true"})
    assert part.status_code == 404
    assert "<html" not in part.text


def test_the_interface_for_programs_has_no_pages(connect: Connect) -> None:
    assert_problem(connect().get("/v1/queries/q-0", headers=BROWSER), 404)


def test_a_service_that_is_not_there_yet_asks_for_another_try() -> None:
    client = TestClient(application(Settings()), base_url=LOOPBACK)
    shown = client.get("/", headers=BROWSER)
    assert shown.status_code == 503
    assert shown.headers["retry-after"] == "1"
    assert "Try again" in shown.text


@pytest.mark.parametrize(
    ("body", "kind", "status", "told"),
    [
        (b"{}", "application/json", 415, "must be application/x-www-form-urlencoded"),
        (b"a=%ff", FORM["content-type"], 422, "percent-encoded UTF-8"),
        ("a=\xe9".encode(), FORM["content-type"], 422, "percent-encoded UTF-8"),
        (b"&".join([b"a=1"] * 501), FORM["content-type"], 422, "at most 500 fields"),
        (b"a" * 2**21, FORM["content-type"], 413, "must have at most"),
    ],
)
def test_what_is_no_form_changes_nothing(
    connect: Connect, body: bytes, kind: str, status: int, told: str
) -> None:
    client = connect(body_limit_bytes=2**20)
    headers = {**BROWSER, "content-type": kind}
    answer = client.post("/ui/queries/q-0/replan", content=body, headers=headers)
    assert answer.status_code == status
    assert told in answer.text


def test_forms_are_for_pages_alone(connect: Connect) -> None:
    answer = connect().post("/v1/queries", content=b"pipeline=add", headers=FORM)
    assert_problem(answer, 415)


@pytest.mark.parametrize("origin", ["https://evil.example.org", "null"])
def test_a_form_on_a_page_of_others_changes_nothing(connect: Connect, origin: str) -> None:
    headers = {**FORM, "origin": origin}
    answer = connect().post("/ui/queries/q-0/cancel", headers=headers)
    assert answer.status_code == 403
    assert "must be that of the service" in answer.text


def test_a_file_is_kept_while_its_name_stays_and_asked_for_again_otherwise(
    connect: Connect,
) -> None:
    client = connect(token="secret")  # they are for everybody
    page = client.get("/login").text
    paths = re.findall(rf'"({STATIC}[^"]+)"', page)
    assert len(paths) >= 4
    for path in paths:
        found = client.get(path)
        assert found.status_code == 200
        assert found.headers["cache-control"] == "public, max-age=31536000, immutable"
        stale = client.get(path.partition("?")[0] + "?v=old")
        assert stale.headers["cache-control"] == "no-cache"
        assert stale.content == found.content
    assert client.get(f"{STATIC}page.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.js", "..%2fpage.css", "../pages.py"):
        assert client.get(f"{STATIC}{name}").status_code in (401, 404)


def test_what_is_not_ours_is_what_the_record_says() -> None:
    record = (STATIC_FOLDER / "THIRD-PARTY.md").read_text()
    known = dict(re.findall(r"^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", record, re.MULTILINE))
    assert known
    for name, digest in known.items():
        assert hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest() == digest
    scripts = sum(len(text) for name, (text, _) in static_files().items() if name.endswith(".js"))
    assert scripts < 100_000


@pytest.mark.parametrize("path", ["/", "/login", "/docs", "/nowhere"])
def test_a_page_may_load_our_files_and_run_nothing_else(connect: Connect, path: str) -> None:
    client = connect(token="secret")
    client.post("/login", data={"token": "secret"})
    shown = client.get(path, headers=BROWSER)
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert shown.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?! src=\"/ui/static/)|<style| style=| on[a-z]+=", shown.text)
    loaded = re.findall(r'<(?:link|script|img)[^>]* (?:href|src)="([^"]+)"', shown.text)
    assert all(each.startswith(STATIC) for each in loaded)


def test_the_page_one_is_on_is_marked_and_there_is_a_way_out(connect: Connect) -> None:
    client = connect(token="secret")
    client.post("/login", data={"token": "secret"})
    page = client.get("/", headers=BROWSER).text
    assert re.findall(r'href="([^"]+)" aria-current="page"', page) == [SECTIONS["Queries"]]
    assert 'action="/logout"' in page
    assert 'action="/logout"' not in connect().get("/").text
