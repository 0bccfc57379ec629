"""Models that operators hold between calls."""

import time
from threading import Thread

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.loaded import LoadedModels, loading


def test_no_memory_for_models_is_refused() -> None:
    with pytest.raises(InvalidInput, match="limit_bytes must be finite and > 0"):
        LoadedModels(limit_bytes=0)


def test_a_model_that_fails_to_load_is_not_held_and_is_tried_again() -> None:
    models = LoadedModels(limit_bytes=10)

    def torn() -> str:
        raise OSError("torn file")

    with pytest.raises(OSError, match="torn"):
        models.get("a", 1, torn)
    assert models.held == ()
    assert models.get("a", 1, lambda: "whole") == "whole"


def test_a_model_is_loaded_once_while_it_is_held() -> None:
    models, loads = LoadedModels(limit_bytes=10), list[str]()
    for _ in range(3):
        models.get("a", 4, lambda: loads.append("a"))
    assert loads == ["a"]


def test_a_model_may_be_loaded_while_another_one_is() -> None:
    models = LoadedModels(limit_bytes=10)
    models.get("outer", 4, lambda: models.get("inner", 4, lambda: "inner"))
    assert set(models.held) == {"inner", "outer"}


def test_what_was_not_used_for_longest_makes_room() -> None:
    models = LoadedModels(limit_bytes=10)
    for key in ("a", "b", "a", "c"):
        models.get(key, 4, lambda: object())
    assert models.held == ("a", "c")


def test_one_that_is_larger_than_all_may_be_is_held_alone() -> None:
    models = LoadedModels(limit_bytes=10)
    models.get("a", 4, lambda: object())
    models.get("big", 40, lambda: object())
    assert models.held == ("big",)


def test_seconds_of_loading_are_counted_where_they_are_watched() -> None:
    models = LoadedModels(limit_bytes=10)
    with loading() as first:
        models.get("a", 4, lambda: time.sleep(0.05))
    with loading() as again:
        models.get("a", 4, lambda: time.sleep(0.05))
    assert 0.05 <= first.seconds < 1
    assert again.seconds == 0


def test_threads_that_ask_for_one_model_share_it() -> None:
    models, held = LoadedModels(limit_bytes=10), list[object]()

    def slow() -> object:
        time.sleep(0.05)
        return object()

    threads = [Thread(target=lambda: held.append(models.get("a", 4, slow))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) == 4
    assert len(set(map(id, held))) == 1
