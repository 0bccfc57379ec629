"""Who may talk to a service: under which names, from which pages, and who logged in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from socket import gethostname

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr, ValidationError
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from circinus.api.http.app import application
from circinus.api.http.authentication import SESSION_S, Authentication, Login
from circinus.api.settings import Settings
from circinus.pipelines.clock import ManualClock
from tests.api.test_app import Answered

TOKEN = "secret; of=all"
OWN = "http://127.0.0.1:8350"
AUTHORISED = {"authorization": f"Bearer {TOKEN}"}
FROM_A_LINK = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def _reached(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("reached")(scope, receive, send)


def client(token: str | None = TOKEN, *hosts: str, base_url: str = OWN) -> TestClient:
    guard = Authentication(_reached, token, hosts=hosts, cookie="circinus-8350")
    return TestClient(guard, base_url=base_url, follow_redirects=False)


def refused(response: Answered, status: int, field: str, value: str) -> None:
    assert response.status_code == status, response.text
    (violation,) = response.json()["errors"]
    assert (violation["field"], violation["value"]) == (field, repr(value))
    assert violation["rule"].startswith("must be")


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "QUERY"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example.org",
        "http://127.0.0.1:3000",
        "http://localhost:8350",
        "null",
        "",
        "file://",
        "http://[evil",
        "http://127.0.0.1:8350.evil.example.org",
    ],
)
def test_a_page_from_elsewhere_changes_nothing(
    token: str | None, method: str, origin: str
) -> None:
    headers = {**(AUTHORISED if token else {}), "origin": origin}
    answer = client(token).request(method, "/v1/queries/q:cancel", headers=headers)
    refused(answer, 403, "Origin", origin)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "else"])
def test_what_a_browser_says_of_the_page_counts_beside_its_origin(site: str) -> None:
    headers = {**AUTHORISED, "sec-fetch-site": site, "origin": OWN}
    refused(client().post("/v1/x", headers=headers), 403, "Sec-Fetch-Site", site)


@pytest.mark.parametrize(
    "headers",
    [
        {},  # no browser
        {"origin": OWN},
        {"origin": "HTTP://127.0.0.1:8350"},
        {"sec-fetch-site": "same-origin", "origin": OWN},
        {"sec-fetch-site": "none"},
        {"host": "plans.example.org", "origin": "https://plans.example.org"},
        {"host": "plans.example.org:443", "origin": "https://plans.example.org"},
        {"origin": "https://plans.example.org"},  # a proxy gave it another name
    ],
)
def test_its_own_pages_and_other_programs_may_change_something(headers: dict[str, str]) -> None:
    answer = client(TOKEN, "plans.example.org").post("/v1/x", headers={**AUTHORISED, **headers})
    assert answer.text == "reached"


def test_a_page_from_elsewhere_may_be_a_link_to_what_changes_nothing() -> None:
    headers = {**AUTHORISED, "sec-fetch-site": "cross-site", "origin": "https://example.org"}
    assert client().get("/v1/queries", headers=headers).text == "reached"


@pytest.mark.parametrize(
    "host", ["evil.example.org", "evil.example.org:8350", "127.0.0.1.nip.io", "", "svc", "x.svc.y"]
)
def test_a_name_that_is_none_of_its_own_is_refused_with_a_token_too(host: str) -> None:
    for path in ("/v1/queries", "/healthz", "/login"):
        answer = client(TOKEN, ".svc").get(path, headers={**AUTHORISED, "host": host})
        assert answer.status_code == 400
        assert "CIRCINUS_ALLOWED_HOSTS" in answer.json()["detail"]
        assert repr(host) in answer.json()["detail"]


@pytest.mark.parametrize(
    "host",
    ["10.0.0.7:8350", "[fe80::1]:8350", "LOCALHOST", gethostname(), "a.b.svc:80", "Plans:8350"],
)
def test_addresses_and_names_of_its_own_are_served(host: str) -> None:
    served = client(TOKEN, ".svc", "plans")
    assert served.get("/v1/x", headers={**AUTHORISED, "host": host}).text == "reached"


def test_a_star_is_any_host_but_no_page_from_elsewhere() -> None:
    open_to_all = client(TOKEN, "*")
    headers = {**AUTHORISED, "host": "any.example.org"}
    assert open_to_all.get("/v1/x", headers=headers).text == "reached"
    answer = open_to_all.post("/v1/x", headers={**headers, "origin": "https://example.org"})
    refused(answer, 403, "Origin", "https://example.org")


@pytest.mark.parametrize("name", ["a:80", "https://a", "a b", "*.a", "-a", "."])
def test_a_host_that_is_no_name_is_no_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRCINUS_ALLOWED_HOSTS", f"fine.example.org, {name}")
    with pytest.raises(ValidationError, match=re.escape("must be a host's name")):
        Settings()


def test_hosts_are_settings() -> None:
    settings = Settings(host="Lab", token=SecretStr("t"), allowed_hosts=("A.example.org", ".svc"))
    assert settings.guarded_by["hosts"] == ("lab", "a.example.org", ".svc")


@pytest.mark.parametrize(
    "path", ["/docs", "/openapi.json", "/redoc", "/metrics", "/v1", "/", "/x"]
)
def test_without_the_token_nothing_but_health_is_told(path: str) -> None:
    answer = client().get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert client().get("/healthz").text == "reached"
    assert client(None).get(path).text == "reached"


def test_who_follows_a_link_is_asked_for_the_token_and_led_on() -> None:
    browser = client()
    sent = browser.get("/v1/queries?limit=2&phase=serving", headers=FROM_A_LINK)
    assert sent.status_code == 303
    form = browser.get(sent.headers["location"])
    assert "no-store" in form.headers["cache-control"]
    assert "default-src 'none'" in form.headers["content-security-policy"]
    wanted = re.search(r'name="next" value="([^"]*)"', form.text)
    assert wanted is not None
    assert wanted[1] == "/v1/queries?limit=2&amp;phase=serving"
    entered = browser.post("/login", data={"token": TOKEN, "next": "/v1/queries?limit=2"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/v1/queries?limit=2")
    # From now on the browser shows the cookie by itself, also for an EventSource.
    assert browser.get("/v1/queries", headers=FROM_A_LINK).text == "reached"
    assert browser.get("/v1/events", headers={"accept": "text/event-stream"}).text == "reached"
    assert browser.post("/v1/x", headers={"origin": OWN}).text == "reached"
    refused(browser.post("/v1/x", headers={"origin": "null"}), 403, "Origin", "null")


def test_what_is_no_link_is_told_that_the_token_is_missing() -> None:
    for method, headers in (("POST", FROM_A_LINK), ("GET", {"accept": "*/*"})):
        assert client().request(method, "/v1/queries", headers=headers).status_code == 401


def test_the_cookie_does_not_tell_the_token_and_no_script_reads_it() -> None:
    cookie = client().post("/login", data={"token": TOKEN}).headers["set-cookie"]
    assert TOKEN not in cookie
    words = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert words == {"httponly", "samesite=strict", "path=/", f"max-age={SESSION_S}"}
    secured = client().post(
        "/login", data={"token": TOKEN}, headers={"x-forwarded-proto": "https"}
    )
    assert "; secure" in secured.headers["set-cookie"].lower()


def test_leaving_takes_the_cookie_back() -> None:
    browser = client()
    browser.post("/login", data={"token": TOKEN})
    assert browser.post("/logout", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert browser.get("/v1/x").text == "reached"
    assert browser.post("/logout").headers["location"] == "/login"
    assert browser.get("/v1/x").status_code == 401


@pytest.mark.parametrize("form", [{}, {"token": ""}, {"token": "wrong"}, {"token": "s\xe9cret"}])
def test_a_wrong_token_gets_the_form_again(form: Mapping[str, str]) -> None:
    answer = client().post("/login", data={**form, "next": '/v1/"><script>'})
    assert answer.status_code == 401
    assert "not the token" in answer.text
    assert "<script>" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "wanted", ["https://evil.example.org", "//evil", "/\\evil", "evil", "", "/\t/evil", "/\xe9"]
)
def test_a_login_leads_nowhere_else(wanted: str) -> None:
    answer = client().post("/login", data={"token": TOKEN, "next": wanted})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(("method", "path"), [("PUT", "/login"), ("GET", "/logout")])
def test_there_is_one_way_in_and_one_out(method: str, path: str) -> None:
    assert client().request(method, path).status_code == 405


def test_a_form_that_is_too_large_is_refused() -> None:
    assert client().post("/login", data={"token": "x" * 10_000}).status_code == 413


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "circinus-8350=",
        "circinus-8350=9999999999.",
        "circinus-8350=9999999999.abc",
        "a=b; ; =",
    ],
)
def test_a_cookie_that_the_service_did_not_give_opens_nothing(cookie: str) -> None:
    assert client().get("/v1/x", headers={"cookie": cookie}).status_code == 401


def test_a_session_ends_by_itself_and_with_the_token() -> None:
    clock = ManualClock(1000.0)
    login = Login("secret", "c", clock)
    scope = {"method": "POST", "path": "/login", "scheme": "http", "query_string": b""}
    answer = asyncio.run(login.answer(scope, Headers(), b"token=secret"))
    cookie = Headers({"cookie": answer.headers["set-cookie"].split(";")[0]})
    assert login.has_session(cookie)
    assert not Login("another", "c", clock).has_session(cookie)
    clock.sleep(SESSION_S - 1.0)
    assert login.has_session(cookie)
    clock.sleep(1.0)
    assert not login.has_session(cookie)


def test_the_description_loads_nothing_from_anywhere() -> None:
    pages = TestClient(application(Settings()), base_url=OWN)
    found = pages.get("/docs")
    assert found.status_code == 200
    loaded = re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]*)"', found.text)
    assert loaded
    assert all(path.startswith("/ui/static/") for path in loaded)
    assert not re.search(r"<script>|<style|style=|https?://", found.text.partition("<pre")[0])
    assert "default-src 'none'" in found.headers["content-security-policy"]
    for path, ways in pages.get("/openapi.json").json()["paths"].items():
        for method in ways:
            assert f"<code>{method.upper()} {path}</code>" in found.text
    assert pages.get("/redoc").status_code == 404
