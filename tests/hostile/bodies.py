"""Bodies made to hold a service up or to break it, each with the route that it goes to.

Each is to be refused by a problem document that names field, rule and value, and to hold up
nobody meanwhile.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

MIB = 2**20
JSON, LINES, ZIP = "application/json", "application/jsonl", "application/zip"


class Hostile(NamedTuple):
    """A body, made when it is sent."""

    name: str
    method: str
    path: str
    media: str
    make: Callable[[], bytes]


def repeated(part: bytes, around: bytes = b"[%s]", between: bytes = b",") -> bytes:
    """Return a body of a MiB, at most, made of a part again and again."""
    times = (MIB - len(around)) // (len(part) + len(between))
    return around.replace(b"%s", between.join([part] * times))


def _numbered(form: str, count: int, around: str = "{%s}") -> bytes:
    return (around % ",".join(form % i for i in range(count))).encode()


ANYWHERE: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: repeated(b"[]"),
    "empty mappings": lambda: repeated(b"{}"),
    "lists in lists of one": lambda: repeated(b"[[[[1]]]]"),
    "ones": lambda: repeated(b"1"),
    "empty texts": lambda: repeated(b'""'),
    "short floats": lambda: repeated(b"0.1"),
    "numbered keys": lambda: _numbered('"%d":1', 80_000),
    "a key twice, far apart": lambda: _numbered('"%d":1', 4000, '{"last":0,%s,"last":0}'),
    "a key many times": lambda: repeated(b'"a":1', b"{%s}")[:-1] + b"}",
    "nested without an end": lambda: b"[" * MIB,
    "nested a thousand times": lambda: b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "nested 101 times": lambda: b"[" * 101 + b"]" * 101,
    "commas alone": lambda: b"," * MIB,
    "quotes alone": lambda: b'"' * MIB,
    "backslashes alone": lambda: b"\\" * MIB,
    "a text without an end": lambda: b'"' + b"a" * (MIB - 1),
    "a text of escapes without an end": lambda: b'"' + b"\\n" * (MIB // 2 - 1),
    "blanks alone": lambda: b" " * MIB,
    "digits alone": lambda: b"9" * MIB,
    "a fraction without an end, and more": lambda: b"0." + b"1" * (MIB - 3) + b",",
    "an exponent of a thousand digits": lambda: b'{"seed":1e' + b"9" * 1000 + b"}",
    "not a number": lambda: b'{"seed":NaN}',
    "infinity below": lambda: b'{"weight":-Infinity}',
    "half a surrogate pair as a key": lambda: b'{"\\udc00":1}',
    "halves of surrogate pairs": lambda: repeated(b'"\\ud800"')[: MIB // 8] + b'"]',
    "UTF-16": lambda: '{"seed": 1}'.encode("utf-16"),
    "a byte order mark": lambda: b'\xef\xbb\xbf{"seed": 1}',
    "bytes that are no text": lambda: b"\xff" * MIB,
    "overlong UTF-8": lambda: b'{"\xc0\x80":1}',
    "NUL": lambda: b"\0" * 1000,
    "torn in a key": lambda: b'{"pipeli',
    "two documents": lambda: b'{"seed":1}{"seed":2}',
    "a comment": lambda: b'{"seed":1} // and so on',
    "single quotes": lambda: b"{'seed':1}",
    "a list": lambda: b"[]",
    "a text": lambda: b'"pipeline"',
    "a number": lambda: b"7",
    "2000 unknown fields": lambda: _numbered('"f%d":1', 2000),
    "unknown fields with long names": lambda: _numbered('"' + "n" * 300 + '%d":{}', 2400),
    "an unknown field of a MiB": lambda: b'{"' + b"x" * (MIB - 9) + b'":1}',
    "more than a MiB": lambda: b'{"seed":"' + b"x" * MIB + b'"}',
}
"""Refused whatever they are sent to."""

Q = "/v1/queries/q-1"
ROUTES = (
    ("POST", "/v1/queries"),
    ("POST", f"{Q}:whatif"),
    ("POST", f"{Q}:replan"),
    ("POST", f"{Q}/requests"),
    ("POST", "/v1/queries/q-9/requests"),  # which serves nothing: the service's to say
    ("PATCH", "/v1/infrastructure"),
    ("PATCH", "/v1/emulation"),
    ("POST", "/v1/schedule:preview"),
)


def _query(**more: object) -> Callable[[], bytes]:
    valid = {
        "pipeline": "add",
        "data": {"examples": 10},
        "slo": {"accuracy": 0.5, "latency_s": 1.0},
    }
    return lambda: _json(valid | more)


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _restricted(**restrictions: object) -> Callable[[], bytes]:
    return _query(restrictions=restrictions)


QUERIES: dict[str, Callable[[], bytes]] = {
    "50,000 bad knobs": _restricted(knobs={"a": {f"k{i}": 1 for i in range(50_000)}}),
    "4900 bad knobs": _restricted(knobs={"a": {f"k{i}": 1 for i in range(4900)}}),
    "bad values of many knobs": _restricted(
        knobs={"a": {f"k{i}": {"only": [[]]} for i in range(900)}}
    ),
    "many bad values": _restricted(
        knobs={"a": {f"k{i}": {"only": [None] * 900} for i in range(5)}}
    ),
    "many values that are mappings": _restricted(knobs={"a": {"k": {"never": [{}] * 999}}}),
    "too many values": _restricted(knobs={"a": {"k": {"only": [1] * 4900}}}),
    "tiers with long names": _restricted(tiers={"n" * 200 + str(i): 1 for i in range(4900)}),
    "many tiers that say nothing": _restricted(tiers={f"t{i}": {} for i in range(2400)}),
    "tiers of numbers": _restricted(tiers={"add": {"only": [1] * 999}}),
    "operators of operators": _restricted(
        knobs={f"o{i}": {f"k{j}": [] for j in range(40)} for i in range(55)}
    ),
    "a huge whole number": lambda: _query()()[:-1] + b',"seed":' + b"9" * 4000 + b"}",
    "a number that is too many digits": lambda: _query()()[:-1] + b',"seed":' + b"9" * 5000 + b"}",
    "a pipeline of a MiB": lambda: _query(pipeline="p" * (MIB - 200))(),
    "a pipeline with NUL": _query(pipeline="add\0"),
    "a tenant of a MiB": lambda: _query(tenant="t" * (MIB - 200))(),
    "a path for a pipeline": _query(pipeline="../../etc/passwd"),
    "code for a pipeline": _query(pipeline="os:system"),
    "a device for data": _query(data={"jsonl": "/dev/zero"}),
    "another's folder for data": _query(data={"folder": "/proc/self"}),
    "a folder with NUL": _query(data={"folder": "a\0b"}),
    "a data set with a path": _query(data={"dataset": "../d-0"}),
    "examples without end": _query(data={"examples": 10**18}),
    "a seed beyond 64 bits": _query(seed=2**64),
    "a seed as float": _query(seed=1e300),
    "every field a mapping": lambda: _json({name: {} for name in ("pipeline", "data", "slo")}),
    "every field nested": lambda: _query(slo=_nested(90))(),
}


def _nested(deep: int) -> object:
    found: object = 1
    for _ in range(deep):
        found = {"slo": found}
    return found


def _input(text: bytes) -> Callable[[], bytes]:
    return lambda: b'{"input":' + text + b"}"


INPUTS: dict[str, Callable[[], bytes]] = {
    "no input": lambda: b"{}",
    "input and example": lambda: b'{"input":1,"example":{"index":0}}',
    "nested 65 times": _input(b"[" * 65 + b"1" + b"]" * 65),
    "marks without end": lambda: b'{"input":%s}' % repeated(b'{"$bytes":""}', b"[%s]"),
    "24,000 marks, the last wrong": lambda: (
        b'{"input":[' + b'{"$bytes":""},' * 24_000 + b'{"$bytes":3}]}'
    ),
    "a mark that nobody knows": _input(b'{"$code":"import os"}'),
    "many marks at once": lambda: b'{"input":%s}' % _numbered('"$%d":1', 20_000),
    "bytes that are none": _input(b'{"$bytes":"' + b"?" * (MIB - 99) + b'"}'),
    "an array of 37 GiB": _input(b'{"$array":{"dtype":"<f8","shape":[5000000000],"base64":""}}'),
    "an array of everything": _input(
        b'{"$array":{"dtype":"<f8","shape":[%s],"base64":""}}' % b",".join([b"9" * 19] * 33)
    ),
    "an array below nothing": _input(b'{"$array":{"dtype":"<f8","shape":[-1],"base64":""}}'),
    "an array of objects": _input(b'{"$array":{"dtype":"O","shape":[1],"base64":"AAAAAAAAAAA="}}'),
    "a dtype of a MiB": _input(
        b'{"$array":{"dtype":"' + b"i4," * (MIB // 3 - 99) + b'","shape":[],"base64":""}}'
    ),
    "a dtype that nests": _input(b'{"$array":{"dtype":"(2,(3)","shape":[],"base64":""}}'),
    "40,000 dimensions": lambda: (
        b'{"input":{"$array":{"dtype":"|u1","shape":[%s],"base64":""}}}'
        % b",".join([b"1"] * 40_000)
    ),
    "a mapping of pairs that are none": _input(b'{"$dict":' + repeated(b"[1]")[:9999] + b"]}"),
    "below a long name": lambda: (
        b'{"input":{"' + b"n" * (MIB // 2) + b'":[' + b"[]," * 20_000 + b'{"$bytes":1}]}}'
    ),
    "an example without end": lambda: b'{"example":{"index":0,"count":1000000000000}}',
    "an example below 0": lambda: b'{"example":{"index":-1}}',
    "a time-out without end": lambda: b'{"input":1,"timeout_s":1e300}',
    "49,000 unknown fields": lambda: _numbered('"f%d":1', 49_000, '{"input":1,%s}'),
    "49,000 unknown fields of an example": lambda: _numbered(
        '"f%d":1', 49_000, '{"example":{"index":0,%s}}'
    ),
}

OTHERS: tuple[tuple[str, str, str, Callable[[], bytes]], ...] = (
    (
        "machines that are none",
        *ROUTES[5],
        lambda: _json({"machines": {f"t{i}": "x" for i in range(4900)}}),
    ),
    ("machines without end", *ROUTES[5], lambda: b'{"machines":{"cloud":' + b"9" * 4000 + b"}}"),
    ("links that are none", *ROUTES[6], lambda: _json({"links": [1] * 4900})),
    ("links between many", *ROUTES[6], lambda: _json({"links": [{"between": ["a"] * 4000}]})),
    (
        "infinitely wide links",
        *ROUTES[6],
        lambda: b'{"links":[{"between":["a","b"],"bandwidth_mbit_per_s":1e999}]}',
    ),
    ("arrivals that are none", *ROUTES[7], lambda: _json({"arriving": [1] * 4900})),
    ("900 empty arrivals", *ROUTES[7], lambda: _json({"arriving": [{}] * 900})),
    (
        "plans that are none",
        *ROUTES[7],
        lambda: _json({"arriving": [{"id": "a", "plans": [{"id": 1, "demand": 1}] * 900}]}),
    ),
    (
        "demands that are none",
        *ROUTES[7],
        lambda: _json(
            {"arriving": [{"id": "a", "plans": [{"id": "p", "demand": [{}] * 64}] * 30}]}
        ),
    ),
    ("nobody leaves", *ROUTES[7], lambda: _json({"leaving": [None] * 4900})),
    (
        "quotas that are none",
        *ROUTES[7],
        lambda: _json({"quotas": {str(i): 5 for i in range(2400)}}),
    ),
    ("a price without end", *ROUTES[1], lambda: _json({"price": {"cloud": "9" * MIB}})[:MIB]),
    (
        "4900 changes that are none",
        *ROUTES[1],
        lambda: _json({"machines": {f"t{i}": 1 for i in range(4900)}}),
    ),
    ("a change that is a formula", *ROUTES[2], lambda: b'{"latency":"__import__(\'os\')"}'),
    ("data without end", *ROUTES[2], lambda: b'{"data":{"examples":1000000000000}}'),
    ("a path with NUL", "GET", "/v1/queries/q-%00", lambda: b""),
    ("a cursor with NUL", "GET", "/v1/queries?cursor=%00", lambda: b""),
    ("a cursor of 50 KiB", "GET", "/v1/queries?cursor=" + "A" * 50_000, lambda: b""),
    ("a page of everything", "GET", "/v1/queries?limit=" + "9" * 5000, lambda: b""),
    ("a plan of 50 KiB", "GET", "/v1/plans/" + "p" * 50_000, lambda: b""),
)


def _zip(*entries: tuple[str, bytes], **how: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = how.get("mode", 0o644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _index(*names: str) -> tuple[str, bytes]:
    lines = [json.dumps({"file": name, "expected": 1}) for name in names]
    return "expected.jsonl", "\n".join(lines).encode()


def npy(header: str, data: bytes = b"") -> bytes:
    """Return an array's file with a header of one's own."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


HUGE = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (5000000000,), }")  # 37 GiB

UPLOADS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "lines of nothing": (LINES, lambda: b"\n" * MIB),
    "60 MiB of nothing": (LINES, lambda: b"\n" * (60 * MIB)),
    "60 MiB of zeros": (LINES, lambda: bytes(60 * MIB)),
    "lines of brackets": (LINES, lambda: b"{\n" * MIB),
    "a line of a MiB of lists": (
        LINES,
        lambda: b'{"input":' + repeated(b"[]") + b',"expected":1}',
    ),
    "a deep line": (LINES, lambda: b'{"input":' + b"[" * 10**5 + b"]" * 10**5 + b',"expected":1}'),
    "a line with NaN": (LINES, lambda: b'{"input":NaN,"expected":1}'),
    "a line with half a pair": (LINES, lambda: b'{"input":"\\ud800","expected":1}'),
    "a line with a field twice": (LINES, lambda: b'{"input":1,"input":2,"expected":1}'),
    "more lines than are taken": (LINES, lambda: b'{"input":1,"expected":1}\n' * 3000),
    "JSON lines for an archive": (ZIP, lambda: b'{"input":1,"expected":1}\n' * 10),
    "a list of files alone": (ZIP, lambda: b"PK\1\2" * (16 * MIB)),
    "an end without a list": (ZIP, lambda: b"PK\5\6" + bytes(18)),
    "an end that lies": (ZIP, lambda: b"PK\5\6" + b"\xff" * 18),
    "files without an index": (ZIP, lambda: _zip(("a.txt", b"x"))),
    "an index of what is not there": (ZIP, lambda: _zip(_index("a.txt"))),
    "a name that leads out": (ZIP, lambda: _zip(_index("a"), ("../a", b"x"))),
    "an absolute name": (ZIP, lambda: _zip(_index("a"), ("/etc/a", b"x"))),
    "a link": (ZIP, lambda: _zip(_index("a"), ("a", b"/etc/passwd"), mode=0o120777)),
    "a device": (ZIP, lambda: _zip(_index("a"), ("a", b""), mode=0o020666)),
    "a name of 5000 characters": (ZIP, lambda: _zip(_index("n" * 5000), ("n" * 5000, b"x"))),
    "a bomb": (ZIP, lambda: _zip(_index("a"), ("a", bytes(100 * MIB)))),
    "an index that is a bomb": (ZIP, lambda: _zip(("expected.jsonl", bytes(60 * MIB)))),
    "10,000 files": (ZIP, lambda: _zip(*((f"f{i}", b"") for i in range(10_000)))),
    "an array that claims 37 GiB": (ZIP, lambda: _zip(_index("a.npy"), ("a.npy", HUGE))),
    "an array whose header nests": (
        ZIP,
        lambda: _zip(_index("a.npy"), ("a.npy", npy("(" * 9000))),
    ),
    "an array of negatives": (
        ZIP,
        lambda: _zip(_index("a.npy"), ("a.npy", npy("-" * 9000 + "1"))),
    ),
    "pickled objects": (
        ZIP,
        lambda: _zip(
            _index("a.npy"),
            (
                "a.npy",
                npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\n" * 9),
            ),
        ),
    ),
    "JSON of a MiB of lists": (
        ZIP,
        lambda: _zip(_index("a.json"), ("a.json", repeated(b"[]"))),
    ),
    "text that is none": (ZIP, lambda: _zip(_index("a.txt"), ("a.txt", b"\xff" * 1000))),
    "more than is taken": (LINES, lambda: bytes(65 * MIB)),
    "nothing": (ZIP, lambda: b""),
    "another kind": ("application/x-tar", lambda: b"ustar"),
}


def every() -> Iterator[Hostile]:
    """Yield all of them."""
    for (method, path), (name, make) in product(ROUTES, ANYWHERE.items()):
        yield Hostile(f"{name} to {method} {path}", method, path, JSON, make)
    for name, make in QUERIES.items():
        yield Hostile(f"query: {name}", *ROUTES[0], JSON, make)
    for path, (name, make) in product((f"{Q}/requests", ROUTES[4][1]), INPUTS.items()):
        yield Hostile(f"{name} to {path}", "POST", path, JSON, make)
    for name, method, path, make in OTHERS:
        yield Hostile(name, method, path, JSON, make)
    for name, (media, make) in UPLOADS.items():
        yield Hostile(f"data set: {name}", "POST", "/v1/datasets", media, make)


EVERY = tuple(every())
