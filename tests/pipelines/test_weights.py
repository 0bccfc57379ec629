"""Weights of models: where they lie, and what is checked of them."""

from hashlib import sha256
from pathlib import Path

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.weights import FOLDER, ModelWeights

_CONTENT = b"weights"


def _weights(**more: str) -> ModelWeights:
    files = {"model.bin": sha256(_CONTENT).hexdigest()}
    return ModelWeights(
        name="tiny", what="a model", licence="MIT", size_bytes=len(_CONTENT), files=files, **more
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    return tmp_path / "models" / "tiny"


def test_weights_that_nothing_has_are_refused_with_what_to_do(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"circinus prepare, from the folder CIRCINUS_MODELS"):
        _weights().prepare()
    with pytest.raises(InvalidInput, match="weights must be there"):
        _weights().path("model.bin")


def test_a_file_of_another_content_is_refused_by_its_hash(folder: Path) -> None:
    (folder / "model.bin").write_bytes(b"other")
    with pytest.raises(InvalidInput, match=r"model\.bin must have the SHA-256"):
        _weights().prepare()


def test_a_file_that_changed_since_it_was_checked_is_checked_again(folder: Path) -> None:
    file = folder / "model.bin"
    file.write_bytes(_CONTENT)
    _weights().prepare()
    file.write_bytes(b"another")
    with pytest.raises(InvalidInput, match="must have the SHA-256"):
        _weights().prepare()


def test_what_was_checked_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.bin").write_bytes(_CONTENT)
    _weights().prepare()
    monkeypatch.setattr("circinus.pipelines.execution.weights._digest", None)
    _weights().prepare()


def test_what_is_missing_is_named_with_size_and_licence(folder: Path) -> None:
    need = _weights(hub="someone/tiny").need
    assert not need.is_there()
    assert str(need) == (
        "weights tiny (a model, 7e-06 MB, MIT) (circinus prepare, from the folder "
        "CIRCINUS_MODELS that has tiny/, or from someone/tiny)"
    )
    (folder / "model.bin").write_bytes(_CONTENT)
    assert need.is_there()
    assert _weights().path("model.bin") == folder / "model.bin"
