"""Structured events: one JSON object per line on stderr, fields beside the event's name.

`event(log, "query.planned", query_id=..., plans=3)`; never sentences with numbers pasted in.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_FIELDS = "circinus_fields"


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, event, then its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        } | getattr(record, _FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def event(log: logging.Logger, name: str, /, **fields: object) -> None:
    """Log an event that went as it should."""
    log.info(name, extra={_FIELDS: fields})


def trouble(
    log: logging.Logger, name: str, /, *, error: BaseException | None = None, **fields: object
) -> None:
    """Log an event that somebody should look at, with the traceback of its error if it has one."""
    log.warning(name, extra={_FIELDS: fields}, exc_info=error)


def start_event_log(level: str) -> None:
    """Send the events of this process to stderr, from `level` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("alembic", "uvicorn.access", "httpx", "kopf.objects", "sqlalchemy"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
