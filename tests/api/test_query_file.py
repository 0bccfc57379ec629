"""Query and infrastructure files: every malformed one is named, every good one is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from circinus.api.query_file import query_of, query_schema, read_document, read_infrastructure
from circinus.api.schemas.query import to_query
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.strict import LARGEST_FILE_BYTES, parse_document
from circinus.pipelines.model.slo import LatencyStatistic
from tests.api.malformed import INFRASTRUCTURES, TEXTS, Wrong, as_yaml, query


def _refused(wrong: Wrong, error: InvalidInput) -> None:
    told = [f for f in error.violations if wrong.field in f.field and wrong.rule in f.rule]
    assert told, error
    assert any(wrong.value in violation.value for violation in told), error


@pytest.mark.parametrize("wrong", TEXTS, ids=lambda wrong: wrong.name)
def test_a_malformed_file_is_refused_with_field_rule_and_value(
    wrong: Wrong, tmp_path: Path
) -> None:
    content = wrong.content
    path = tmp_path / "query.yaml"
    path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    with pytest.raises(InvalidInput) as caught:
        query_of(read_document(path))
    _refused(wrong, caught.value)


@pytest.mark.parametrize("wrong", INFRASTRUCTURES, ids=lambda wrong: wrong.name)
def test_a_malformed_infrastructure_is_refused_with_field_rule_and_value(
    wrong: Wrong, tmp_path: Path
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(as_yaml(wrong.content))
    with pytest.raises(InvalidInput) as caught:
        read_infrastructure(str(path))
    _refused(wrong, caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be a readable file"):
        read_document(tmp_path / "none.yaml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be a file, not a folder"):
        read_document(tmp_path)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a file or one of local"):
        read_infrastructure("five-tier")


def test_a_file_of_exactly_the_largest_size_is_read() -> None:
    text = b"a: 1\n#"
    assert parse_document(text + b"x" * (LARGEST_FILE_BYTES - len(text))) == {"a": 1}
    with pytest.raises(InvalidInput, match="must have at most"):
        parse_document(text + b"x" * (LARGEST_FILE_BYTES - len(text) + 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-1.5", -1.5),
        ("010", 10),
        ("true", True),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("~", None),
        ("null", None),
        ("2024-01-01", "2024-01-01"),
        ("0x1F", "0x1F"),
        ('"3"', "3"),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_scalars_are_read_as_yaml_1_2_reads_them(text: str, value: object) -> None:
    found = parse_document(f"a: {text}".encode())["a"]
    assert found == value
    assert type(found) is type(value)


def test_all_faults_of_a_file_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        query_of(query(weight=0, seed=-1, slo={"accuracy": 2, "latency_s": 0}))
    assert {violation.field for violation in caught.value.violations} == {
        "weight",
        "seed",
        "slo.accuracy",
        "slo.latency_s",
    }


def test_a_full_file_becomes_the_query_it_describes(tmp_path: Path) -> None:
    path = tmp_path / "query.yaml"
    path.write_text(
        """
        pipeline: digits
        data: {examples: 120, seed: 4}
        slo: {accuracy: 0.9, latency_s: 2.5e-1, latency_statistic: p90, cost_usd_per_hour: 1}
        request_rate_per_s: 5
        weight: 2.5
        duration_s: 3600
        limits: {profiling_s: 10, profiling_usd: 0.1, response_s: 60, configurations: 50}
        seed: 7
        """
    )
    request = query_of(read_document(path))
    found = to_query(request)
    assert request.data.examples == 120
    assert request.data.seed == 4
    assert found.slo.latency_statistic is LatencyStatistic.P90
    assert found.slo.latency_s == 0.25
    assert found.slo.cost_usd_per_hour == 1
    assert found.request_rate_per_s == 5
    assert (found.weight, found.duration_s, found.seed) == (2.5, 3600, 7)
    assert (found.limits.profiling_s, found.limits.configurations) == (10, 50)
    assert (found.limits.profiling_usd, found.limits.response_s) == (0.1, 60)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_survives_its_own_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.yaml"
    path.write_text(yaml.safe_dump(infrastructure_to_dict(PRESETS[name])))
    assert read_infrastructure(str(path)) == PRESETS[name]


def test_the_committed_schema_is_current() -> None:
    committed = json.loads(Path("docs/query.schema.json").read_text(encoding="utf-8"))
    assert committed == query_schema(), "run: circinus validate --schema > docs/query.schema.json"


def test_the_schema_describes_every_field() -> None:
    schema = query_schema()
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    models = [schema, *(d for d in definitions.values() if d["type"] == "object")]
    for model in models:
        properties = model["properties"]
        assert isinstance(properties, dict)
        for name, field in properties.items():
            assert field.get("description"), name
