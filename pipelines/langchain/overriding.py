"""What LangChain does by itself that is left out while an operator runs: retries, and its caches.

The one rule: threads share models and the process, so the first one that wants a setting changes
it, and the last one puts back what was there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from langchain_core.caches import BaseCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.language_models import BaseChatModel

from circinus.pipelines.execution.connections import is_measured


class Setting(NamedTuple):
    """A setting as it is wanted: an attribute, or an item of a dict."""

    owner: Any
    name: str
    value: object


class _Overriding:
    """Changes settings as long as somebody holds them; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = Counter[tuple[int, str]]()
        self._before: dict[tuple[int, str], tuple[Any, object]] = {}  # the owner, and what it had

    @contextmanager
    def held(self, settings: Iterable[Setting]) -> Iterator[None]:
        """Have settings as they are wanted, inside."""
        wanted = {(id(one.owner), one.name): one for one in settings}
        with self._lock:
            for key, one in wanted.items():
                self._holders[key] += 1
                if self._holders[key] == 1:
                    self._before[key] = (one.owner, _read(one.owner, one.name))
                    _write(*one)
        try:
            yield
        finally:
            with self._lock:
                for key, one in wanted.items():
                    self._holders[key] -= 1
                    if not self._holders[key]:
                        owner, before = self._before.pop(key)
                        _write(owner, one.name, before)


_MISSING = object()


def _read(owner: Any, name: str) -> object:  # noqa: ANN401 - of whatever provider
    return owner.get(name, _MISSING) if isinstance(owner, dict) else getattr(owner, name)


def _write(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - of whatever provider
    if not isinstance(owner, dict):
        setattr(owner, name, value)
    elif value is _MISSING:
        owner.pop(name, None)
    else:
        owner[name] = value


class _GlobalCache:
    """LangChain's cache for all models of this process, as an attribute."""

    @property
    def cache(self) -> BaseCache | None:
        return get_llm_cache()

    @cache.setter
    def cache(self, value: BaseCache | None) -> None:
        set_llm_cache(value)


_OVERRIDING = _Overriding()
_GLOBAL = _GlobalCache()


def trying_once(clients: Iterable[Any]) -> Any:  # noqa: ANN401 - a context manager
    """Keep clients, or what makes them, from making failed calls anew, inside."""
    return _OVERRIDING.held(Setting(client, "max_retries", 0) for client in clients)


@contextmanager
def uncached(models: Sequence[BaseChatModel]) -> Iterator[None]:
    """Let no cache of LangChain's answer inside, where that is measured.

    An answer from a cache would be measured as free and quick, and is neither on new inputs.
    """
    caching = [one for one in models if isinstance(one.cache, BaseCache) or one.cache is True]
    if not is_measured() or (get_llm_cache() is None and not caching):
        yield
        return
    settings = [
        Setting(_GLOBAL, "cache", None),
        *(Setting(one, "cache", False) for one in caching),
    ]
    with _OVERRIDING.held(settings):
        yield


def cache_names(models: Sequence[BaseChatModel]) -> list[str]:
    """Return what would answer for models, by the names of the caches' classes, each once."""
    found = [one.cache if isinstance(one.cache, BaseCache) else get_llm_cache() for one in models]
    return sorted({type(one).__name__ for one in found if isinstance(one, BaseCache)})
