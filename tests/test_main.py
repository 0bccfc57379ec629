"""The entry of the command line, before there is a command."""

import subprocess
import sys

import pytest

from circinus.api.serving import service

_INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "circinus.api.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from circinus.__main__ import main
main()
"""


def test_an_interrupt_during_imports_ends_with_130_and_a_line() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("CIRCINUS_EXECUTOR", "in-process", "error: executor must be pool, worker:TIER, ray"),
        ("CIRCINUS_EXTRA_PIPELINES", "no_such:thing", "error: extra_pipelines must be importable"),
        ("CIRCINUS_PORT", "many", "error: port must be"),
    ],
)
def test_a_service_that_cannot_start_says_so_in_a_line(
    name: str,
    value: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        service.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (left.value.code, line.startswith(told)) == (2, True), line
