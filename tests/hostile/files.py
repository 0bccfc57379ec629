"""Files made to hold a command up or to break it, each with the command that reads it.

Each is to end it with 2, and words that name field, rule and value.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from circinus.pipelines.io.trace import Trace, save_trace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from tests.hostile.bodies import HUGE, MIB, npy, repeated

Content = bytes | Callable[[Path], None]
"""What a file has, or what makes something else of its path."""


class HostileFile(NamedTuple):
    """A file, and what is asked of the command line in its folder."""

    name: str
    path: str
    content: Content
    command: tuple[str, ...]


QUERY = b"pipeline: digits\ndata: {examples: 20}\nslo: {accuracy: 0.8, latency_s: 0.5}\n"


def _sparse(size: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _in_a_circle(path: Path) -> None:
    path.symlink_to(path)


UNREADABLE: dict[str, Content] = {
    "an endless device": _link("/dev/zero"),
    "a device of noise": _link("/dev/urandom"),
    "a pipe that nobody writes to": os.mkfifo,
    "a folder": Path.mkdir,
    "a link in a circle": _in_a_circle,
    "a link to nothing": _link("nowhere"),
    "16 GiB of zeros": _sparse(2**34),
}
"""Whatever reads them."""

YAML: dict[str, bytes] = {
    "empty": b"",
    "a bomb of aliases": b"a: &a [x, x]\n"
    + b"".join(b"%c: &%c [*%c, *%c]\n" % (c, c, c - 1, c - 1) for c in range(98, 122)),
    "an anchor of itself": b"a: &a [*a]\n",
    "a merge": b"a: &a {x: 1}\nb: {<<: *a}\n",
    "lists in lists": b"a: " + b"[" * 100_000,
    "mappings in mappings": b"a: " + b"{a: " * 100_000,
    "lists below lists": b"- " * 5000 + b"a",
    "indented without end": b"".join(b" " * i + b"a:\n" for i in range(1400)),
    "100,000 keys": b"".join(b"k%d: 1\n" % i for i in range(80_000)),
    "a flow of keys": b"{" + b",".join(b"k%d" % i for i in range(100_000)) + b"}",
    "keys that are lists": b"? [1, 2]\n: 3\n",
    "a key of a MiB": b"k" * (MIB - 10) + b": 1\n",
    "a text of a MiB": b'a: "' + b"x" * (MIB - 10),
    "lines without end": b"a: |\n" + b"  x\n" * 250_000,
    "comments alone": b"#\n" * (MIB // 2),
    "blanks alone": b" " * MIB,
    "colons alone": b":" * MIB,
    "dashes alone": b"-" * MIB,
    "question marks": b"? " * 100_000,
    "10,000 documents": b"--- {}\n" * 10_000,
    "tags of Python": b"a: !!python/object/apply:os.system ['true']\n",
    "a tag of one's own": b"a: !mine 1\n",
    "bytes in base64": b"a: !!binary AAAA\n",
    "half a surrogate pair": b'pipeline: "\\ud800"\n',
    "a control character": b"pipeline: \x07\n",
    "UTF-16": "pipeline: digits\n".encode("utf-16"),
    "bytes that are no text": b"\xff" * 1000,
    "a directive of the future": b"%YAML 9.9\n---\na: 1\n",
    "a huge whole number": QUERY + b"seed: " + b"9" * 5000 + b"\n",
    "a huge float": QUERY + b"weight: 1e999999\n",
    "a number in base 16": QUERY + b"seed: 0x10\n",
    "4900 tiers that are none": QUERY
    + b"restrictions: {tiers: {"
    + b",".join(b"t%d: 1" % i for i in range(2400))
    + b"}}\n",
    "2400 unknown fields": QUERY + b"".join(b"f%d: 1\n" % i for i in range(2400)),
    "2 MiB": QUERY + b"#" * 2 * MIB,
}

DATA = b"pipeline: my_pipelines:adder\ndata: {%s}\nslo: {accuracy: 1, latency_s: 1}\n"
LINES: dict[str, bytes] = {
    "zeros": bytes(32 * MIB),
    "nothing": b"\n" * (32 * MIB),
    "brackets": b"{\n" * 100_000,
    "a line of lists": b'{"input": ' + repeated(b"[]") + b', "expected": 1}',
    "a deep line": b'{"input": ' + b"[" * 10_000 + b"]" * 10_000 + b', "expected": 1}',
    "a deeper line": b'{"input": ' + b"[" * 10**6,
    "NaN": b'{"input": NaN, "expected": 1}',
    "half a surrogate pair": b'{"input": "\\ud800", "expected": 1}',
    "a field twice": b'{"input": 1, "expected": 1, "expected": 2}',
    "a huge whole number": b'{"input": ' + b"9" * 5000 + b', "expected": 1}',
    "bytes that are no text": b'{"input": "\xff", "expected": 1}',
    "a list": b"[1, 2]\n",
    "one field more": b'{"input": 1, "expected": 1, "more": 1}',
    "many fields more": b'{"input": 1, "expected": 1, '
    + b",".join(b'"f%d": 1' % i for i in range(20_000))
    + b"}",
}

INPUTS: dict[str, tuple[str, Content]] = {
    "an array that claims 37 GiB": ("a.npy", HUGE),
    "an array that claims everything": (
        "a.npy",
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 4000 + ",), }"),
    ),
    "an array of negatives": (
        "a.npy",
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -8), }", bytes(64)),
    ),
    "a header that nests": ("a.npy", npy("(" * 9000)),
    "a header of signs": ("a.npy", npy("-" * 9000 + "1")),
    "a header of code": ("a.npy", npy("__import__('os').getpid()")),
    "a header that is torn": ("a.npy", npy("{'descr': '<f8', ")),
    "pickled objects": (
        "a.npy",
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\nsystem\n"),
    ),
    "a version of the future": ("a.npy", b"\x93NUMPY\x09\0" + bytes(100)),
    "an archive for an array": ("a.npy", b"PK\5\6" + bytes(18)),
    "JSON of lists": ("a.json", repeated(b"[]")),
    "deep JSON": ("a.json", b"[" * 5000 + b"]" * 5000),
    "JSON of 20 MiB": ("a.json", b'"' + b"\\n" * (10 * MIB) + b'"'),
    "JSON that is none": ("a.json", b"{'a': 1}"),
    "text that is none": ("a.txt", b"\xff" * 1000),
    "a text of 16 GiB": ("a.txt", _sparse(2**34)),
    "an array of 16 GiB": ("a.npy", _sparse(2**34)),
    "a pipe": ("a.bin", os.mkfifo),
    "a device": ("a.bin", _link("/dev/zero")),
    "what is another's": ("a.txt", _link("/etc/passwd")),
    "a name that leads out": ("../a.txt", b"x"),
    "a name with NUL": ("a\\u0000b", b""),
    "a name of 5000 characters": ("n" * 5000, b""),
}


def _archive(*, name: str = "score.npy", content: bytes = HUGE) -> Callable[[Path], None]:
    """Return a trace, of which one array is something else."""

    def make(folder: Path) -> None:
        knobs = (Knob(name="by", values=(0, 1)),)
        specs = (OperatorSpec(name="add", knobs=knobs),)
        shape = (2, 1, 3)
        trace = Trace(
            graph=PipelineGraph(name="adder", operators=specs),
            configurations=np.array([[0], [1]], dtype=np.int16),
            score=np.zeros((2, 3), dtype=np.float32),
            latency_s=np.zeros(shape, dtype=np.float32),
            output_bytes=np.zeros(shape, dtype=np.float32),
            input_bytes=np.zeros(3, dtype=np.float32),
            features=np.zeros((3, 1), dtype=np.float32),
        )
        save_trace(trace, folder)
        arrays = folder / "trace.npz"
        with zipfile.ZipFile(io.BytesIO(arrays.read_bytes())) as before:
            kept = {each: before.read(each) for each in before.namelist()}
        with zipfile.ZipFile(arrays, "w", zipfile.ZIP_DEFLATED) as after:
            for each, data in (kept | {name: content}).items():
                after.writestr(each, data)

    return make


def _described(content: bytes) -> Callable[[Path], None]:
    """Return a trace whose pipeline is described otherwise."""

    def make(folder: Path) -> None:
        _archive()(folder)
        (folder / "pipeline.yaml").write_bytes(content)

    return make


def _without(name: str, instead: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        _archive()(folder)
        (folder / name).unlink()
        instead(folder / name)

    return make


TRACES: dict[str, Callable[[Path], None]] = {
    "an array that claims 37 GiB": _archive(),
    "an array of negatives": _archive(
        content=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }", bytes(24))
    ),
    "a header that nests": _archive(content=npy("(" * 9000)),
    "pickled objects": _archive(
        content=npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\n")
    ),
    "an array of another shape": _archive(
        content=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", bytes(24))
    ),
    "an array that is none": _archive(content=b"\0" * 100),
    "a bomb for a pipeline": _described(YAML["a bomb of aliases"]),
    "a deep pipeline": _described(YAML["lists in lists"]),
    "a pipeline of many keys": _described(YAML["100,000 keys"]),
    "a pipeline of code": _described(YAML["tags of Python"]),
    "a pipeline that is none": _described(b"operators: [{name: add, after: [add]}]"),
    "a device for a pipeline": _without("pipeline.yaml", _link("/dev/zero")),
    "a device for arrays": _without("trace.npz", _link("/dev/zero")),
    "a pipe for arrays": _without("trace.npz", os.mkfifo),
    "zeros for arrays": _without("trace.npz", _sparse(2**34)),
}

DOCUMENTS: dict[str, bytes] = {
    "empty": b"",
    "deep": b"[" * 100_000,
    "deep and whole": b"[" * 50_000 + b"]" * 50_000,
    "torn": b'{"queries": ',
    "a list": b"[]",
    "a number": b"7",
    "bytes that are no text": b"\xff\xfe\xff",
    "a huge whole number": b"9" * 5000,
}
"""JSON that commands read."""


def _every() -> tuple[HostileFile, ...]:
    found = []
    for name, content in (UNREADABLE | YAML).items():
        found += [
            HostileFile(f"query: {name}", "q.yaml", content, ("validate", "q.yaml")),
            HostileFile(
                f"infrastructure: {name}",
                "lab.yaml",
                content,
                ("validate", "--infrastructure", "lab.yaml"),
            ),
        ]
    query = ("validate", "of-data.yaml")
    for name, content in (UNREADABLE | LINES).items():
        found.append(HostileFile(f"lines: {name}", "x.jsonl", content, query))
    for name, (path, content) in INPUTS.items():
        found.append(HostileFile(f"input: {name}", f"x.jsonl/{path}", content, query))
    for name, make in TRACES.items():
        stalled = ("study", "stall", "--trace", "trace", "--out", "stalled")
        found.append(HostileFile(f"trace: {name}", "trace", make, stalled))
    for name, content in (UNREADABLE | DOCUMENTS).items():
        ilp = ("study", "ilp", "--out", "gap", "--problem", "x.json")
        found += [
            HostileFile(f"problem: {name}", "x.json", content, ilp),
            HostileFile(f"history: {name}", "x.json", content, ("history", "import", "x.json")),
        ]
    for name, content in (UNREADABLE | {"deep": DOCUMENTS["deep"], "torn": b"{"}).items():
        sent = ("request", "q-1", "--input", "@x.json")
        found.append(HostileFile(f"request: {name}", "x.json", content, sent))
    for name in ("an endless device", "a pipe that nobody writes to", "16 GiB of zeros"):
        found.append(
            HostileFile(f"handed over: {name}", "x", UNREADABLE[name], ("datasets", "add", "x"))
        )
    return tuple(found)


def write(hostile: HostileFile, folder: Path) -> None:
    """Write a file with what leads to it."""
    path = folder / hostile.path
    kind = b"jsonl" if path.parent == folder else b"folder"
    (folder / "of-data.yaml").write_bytes(DATA % (kind + b": x.jsonl"))
    if path.parent != folder:
        (folder / "x.jsonl").mkdir()
        index = {"file": hostile.path.removeprefix("x.jsonl/"), "expected": 1}
        text = json.dumps(index).replace("\\\\u", "\\u")
        (folder / "x.jsonl" / "expected.jsonl").write_text(text)
    if not isinstance(hostile.content, bytes):
        hostile.content(path)
    elif hostile.content:
        path.write_bytes(hostile.content)


EVERY = _every()
