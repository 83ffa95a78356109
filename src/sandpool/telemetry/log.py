"""Logs: a constant message and keys, as `key=value` text or as one JSON object per line.

    log = logger(__name__)
    log.info("lease acquired", lease=name)

Messages never hold values, so that they can be searched and counted. What is bound with `bound(...)` (the key and the rid of
a reconcile) is on every line written inside. Keys whose names say that they are secret are never written out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

REDACTED = "[redacted]"
_SECRET = re.compile(r"authorization|cookie|credential|passwd|password|private|secret|token", re.IGNORECASE)
_PLAIN = re.compile(r"[\w./:@%+,-]+")
_BOUND: ContextVar[Mapping[str, object]] = ContextVar("sandpool_log_keys", default=MappingProxyType({}))


class Log:
    """A named logger whose methods take keys. Cheap when its level is off."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, /, **keys: object) -> None:
        self._write(logging.DEBUG, message, keys)

    def info(self, message: str, /, **keys: object) -> None:
        self._write(logging.INFO, message, keys)

    def warning(self, message: str, /, **keys: object) -> None:
        self._write(logging.WARNING, message, keys)

    def error(self, message: str, /, *, exc: BaseException | None = None, **keys: object) -> None:
        """With `exc`, the traceback follows on the same record: one failure, one line of log."""
        self._write(logging.ERROR, message, keys, exc)

    def _write(self, level: int, message: str, keys: Mapping[str, object], exc: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            merged = redact({**_BOUND.get(), **keys})
            self._logger.log(level, message, exc_info=exc, extra={"keys": merged}, stacklevel=3)


def logger(name: str) -> Log:
    return Log(name)


class bound:
    """Puts keys on every line that is logged inside, also in tasks started there: `with bound(key=key): ...`"""

    __slots__ = ("_keys", "_token")

    def __init__(self, **keys: object) -> None:
        self._keys = keys

    def __enter__(self) -> None:
        outer = _BOUND.get()
        self._token = _BOUND.set({**outer, **self._keys} if outer else self._keys)

    def __exit__(self, *_: object) -> None:
        _BOUND.reset(self._token)


bind: Callable[[Mapping[str, object]], object] = _BOUND.set
"""As `bound`, until it is called again: for a task that works on one thing after the other and never has to reset it."""


def redact(values: Mapping[str, object]) -> dict[str, object]:
    """The same mapping with the values of secret-sounding names hidden; use it for headers, too."""
    return {name: REDACTED if _SECRET.search(name) else value for name, value in values.items()}


class KeyValueFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z INFO sandpool.loop lease acquired lease=sandpool`"""

    def format(self, record: logging.LogRecord) -> str:
        keys = " ".join(f"{name}={_quoted(value)}" for name, value in _keys(record).items())
        line = f"{_moment(record)} {record.levelname} {record.name} {record.getMessage()}"
        if keys:
            line = f"{line} {keys}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object per line; our own names win over keys of the same name."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(_keys(record))
        fields |= {"ts": _moment(record), "level": record.levelname, "logger": record.name, "msg": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes lines. Lines that cannot be written, for instance on a full disk, are dropped, and their number is logged when writing works
    again. The standard library would print a traceback for each."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._failed = 0
        self._why = ""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._failed:
                self.stream.write(self.terminator)  # the last line may have been cut
                self._write(self._gap(record))
                self._failed = 0
            self._write(record)
        except RecursionError:
            raise
        except Exception as error:
            self._failed += 1
            self._why = getattr(error, "strerror", None) or type(error).__name__

    def _write(self, record: logging.LogRecord) -> None:
        self.stream.write(self.format(record) + self.terminator)
        self.flush()

    def _gap(self, record: logging.LogRecord) -> logging.LogRecord:
        """A record about lines that may be missing."""
        gap = logging.LogRecord(__name__, logging.WARNING, "", 0, "lines could not be written to the log", (), None)
        gap.created = record.created
        gap.__dict__["keys"] = {"lines": self._failed, "error": self._why}
        return gap


def configure(*, style: str = "text", level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sets up the log of this program: `text` or `json`, on stderr by default. Calling it again replaces the setup."""
    formatters: dict[str, type[logging.Formatter]] = {"text": KeyValueFormatter, "json": JsonFormatter}
    if style not in formatters:
        raise ValueError(f"log style {style!r} is unknown; use one of: {', '.join(formatters)}")
    handler = LogHandler(stream or sys.stderr)
    handler.setFormatter(formatters[style]())
    logging.lastResort = handler  # for the loggers of libraries
    root = logging.getLogger("sandpool")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def _keys(record: logging.LogRecord) -> Mapping[str, object]:
    keys: Mapping[str, object] = getattr(record, "keys", {})
    return keys


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def bound_to(name: str) -> object | None:
    """The value bound under this name in the caller's context, or None."""
    return _BOUND.get().get(name)
