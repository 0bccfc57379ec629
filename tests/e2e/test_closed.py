"""A whole service gives nothing away: to who reads its files, and to what it starts."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.service_process import ON_ONE_TIER, ServiceProcess, serving

pytestmark = pytest.mark.slow

TOKEN = "do-not-tell"
DATA = "".join(f'{{"input": {{"value": {i}}}, "expected": {2 * i + 1}}}\n' for i in range(40))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """Yield a service that was started where files are for everybody to read."""
    before = os.umask(0o022)
    runtime = Path(tempfile.mkdtemp(prefix="closed-"))  # sockets have short paths
    folders = {name: str(tmp_path / "state" / name) for name in ("datasets", "outputs")}
    settings = {"token": TOKEN, "runtime": str(runtime), **folders}
    settings["database_url"] = f"sqlite:///{tmp_path / 'state' / 'service.sqlite3'}"
    settings["worker_logs"] = str(tmp_path / "state" / "logs")
    try:
        with serving(tmp_path, ON_ONE_TIER, "tests.e2e.slow_sum:pipeline", **settings) as started:
            started.headers["Authorization"] = f"Bearer {TOKEN}"
            yield started
    finally:
        os.umask(before)


def started_by(service: ServiceProcess) -> list[psutil.Process]:
    assert service.process is not None
    return psutil.Process(service.process.pid).children(recursive=True)


def told(process: psutil.Process) -> tuple[str, str]:
    """Return the command line and the environment of a process, as it was started."""
    try:
        return " ".join(process.cmdline()), Path(f"/proc/{process.pid}/environ").read_text()
    except (OSError, psutil.Error):  # it has ended
        return "", ""


def open_to_others(folder: Path) -> list[Path]:
    """Return the files below a folder that others may read, in folders they may enter."""
    found = []
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            found += open_to_others(path) if mode & 0o011 else []
        elif mode & 0o077:
            found.append(path)
    return found


def test_neither_environments_nor_files_give_anything_away(
    service: ServiceProcess, tmp_path: Path
) -> None:
    data = service.upload(DATA.encode(), "application/jsonl").json()["id"]
    query_id = service.submit(data={"dataset": data})
    kinds = (
        "planning_worker",
        "serving.process",
        "profiling.warm",
        "workers.server",
    )
    seen: dict[str, str] = {}

    def served() -> bool:
        for line, environment in map(told, started_by(service)):
            seen.update({kind: environment for kind in kinds if kind in line})
        return str(service.query(query_id)["phase"]) == "serving"

    service.wait_for(served, "the query to serve")

    assert set(seen) == set(kinds)
    for kind, environment in seen.items():
        assert "PATH=" in environment, kind
        assert TOKEN not in environment, kind
        assert "sqlite:///" not in environment, kind
    assert any((tmp_path / "state" / "outputs").iterdir())
    assert open_to_others(tmp_path / "state") == []
    sockets = Path(service.extra["CIRCINUS_RUNTIME"])
    assert any(sockets.glob("*/w/*"))
    assert stat.S_IMODE((sockets / str(service.port)).stat().st_mode) == 0o700


def test_a_browser_logs_in_once_and_a_page_from_elsewhere_does_nothing(
    service: ServiceProcess,
) -> None:
    address = f"http://127.0.0.1:{service.port}"
    queued = service.submit(limits={"response_s": 3600.0}, data={"examples": 2000})
    with httpx.Client(base_url=address, trust_env=False, timeout=30) as browser:
        assert browser.get("/docs").status_code == 401
        to_login = browser.get("/docs", headers={"accept": "text/html"})
        assert to_login.status_code == 303
        assert browser.get(to_login.headers["location"]).status_code == 200
        form = {"token": TOKEN, "next": "/docs"}
        assert browser.post("/login", data=form).headers["location"] == "/docs"
        # The serving process answers some of it, the service the rest: both know the cookie.
        for path in ("/docs", "/openapi.json", "/v1/queries", "/metrics"):
            assert browser.get(path).status_code == 200
        bodyless = f"/v1/queries/{queued}:cancel"
        for headers in ({"origin": "https://evil.example.org"}, {"sec-fetch-site": "cross-site"}):
            assert browser.post(bodyless, headers=headers).status_code == 403
        assert service.query(queued)["phase"] in ("queued", "planning")
        own = {"origin": address, "sec-fetch-site": "same-origin"}
        assert browser.post(bodyless, headers=own).status_code == 200
        assert browser.get("/v1/queries", headers={"host": "evil.example.org"}).status_code == 400


def test_what_an_earlier_version_left_readable_is_so_no_longer(tmp_path: Path) -> None:
    logs, database = tmp_path / "logs", tmp_path / "service.sqlite3"
    (logs / "others").mkdir(parents=True)
    logs.chmod(0o755)
    for old in (logs / "q-device.log", logs / "others.txt", database):
        old.touch()
        old.chmod(0o644)
    service = ServiceProcess(tmp_path)
    service.start()
    service.stop()

    assert stat.S_IMODE((logs / "q-device.log").stat().st_mode) == 0o600
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    # It is not ours.
    assert stat.S_IMODE((logs / "others.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE(logs.stat().st_mode) == 0o755
