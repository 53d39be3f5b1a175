"""What the broker says to its operator: events on standard error.

An event is a short name and fields: `log.info("serving", extra={"port": 8000})` with the standard library's
loggers, so that core, store and workers need no import of ours. `bound` adds fields to every event of a
request. Never contents, tokens or whole session ids.

1. One event is one line, whatever its fields hold: what would break a line is escaped.
2. Logging never raises into the code that logs.
"""

import contextlib
import contextvars
import json
import logging
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from types import MappingProxyType
from typing import IO, Any, Literal

_BOUND: contextvars.ContextVar[MappingProxyType[str, Any]] = contextvars.ContextVar(
    "bound", default=MappingProxyType({})
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""What a record holds besides the fields of its event."""

_QUIET = ("asyncio", "uvicorn", "uvicorn.error", "watchfiles", "watchfiles.main")
"""Libraries that tell of their routine at info; we say it ourselves where it matters."""


@contextlib.contextmanager
def bound(**fields: Any) -> Generator[None]:
    """Add `fields` to every event logged in this context (a request, a task)."""
    token = _BOUND.set(MappingProxyType({**_BOUND.get(), **fields}))
    try:
        yield
    finally:
        _BOUND.reset(token)


def bind(**fields: Any) -> None:
    """Add `fields` to every event logged in the rest of this task: a request's, which ends with it."""
    _BOUND.set(MappingProxyType({**_BOUND.get(), **fields}))


def bound_fields() -> MappingProxyType[str, Any]:
    """Return the fields that every event of this task gets."""
    return _BOUND.get()


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    form: Literal["text", "json"] = "text",
    stream: IO[str] | None = None,
) -> None:
    """Send events from `level` up to `stream` (standard error by default), written as `form` says."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name in _QUIET:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(logging.WARNING, root.level))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**_BOUND.get(), **own}


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line of JSON."""
        event: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        # An event's own fields never hide when, how bad and what it was.
        event = {**_fields(record), **event}
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, event and `name=value` pairs, for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line of text, with the traceback indented below it."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        pairs = "".join(f"  {name}={_plain(value)}" for name, value in _fields(record).items())
        line = f"{time} {record.levelname.lower():<7} {_one_line(record.getMessage())}{pairs}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


def _one_line(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _plain(value: Any) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else ascii(text)
