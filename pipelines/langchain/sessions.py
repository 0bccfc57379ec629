"""A session of its own for every run of a step that keeps conversations or threads.

An output that depends on the inputs before it is no operator's. The one rule: a run begins with
nothing, and leaves nothing behind where that can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.history import RunnableWithMessageHistory

from circinus.pipelines.langchain.held import everything_of
from circinus.pipelines.langchain.settings import is_graph

_THREAD = "thread_id"  # by which LangGraph finds what a checkpointer keeps


class Sessions:
    """The sessions of one step."""

    def __init__(self, step: Runnable[Any, Any]) -> None:
        every: list[Any] = everything_of(step)
        found = [one.checkpointer for one in every if is_graph(one)]
        self._savers = [one for one in found if one]
        histories = [one for one in every if isinstance(one, RunnableWithMessageHistory)]
        self._ids = {spec.id for one in histories for spec in one.history_factory_config}
        self._ids |= {_THREAD} if self._savers else set()

    @contextmanager
    def opened(self, config: RunnableConfig) -> Iterator[RunnableConfig]:
        """Yield a configuration with new sessions, and delete what checkpointers keep of them."""
        if not self._ids:
            yield config
            return
        session = uuid4().hex
        own = RunnableConfig(configurable=dict.fromkeys(self._ids, session))
        try:
            yield merge_configs(config, own)
        finally:
            for saver in self._savers:
                with suppress(AttributeError, NotImplementedError):  # True, or one that keeps all
                    saver.delete_thread(session)
