"""What the SDK hands out: frozen values, the same for the asynchronous and the synchronous half.

Text is made from bytes with replacement characters where they are no UTF-8: looking at output never fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sandpool.sdk.answers import understood

StreamName = Literal["stdout", "stderr"]
FileType = Literal["file", "directory", "symlink", "other"]
Command = str | list[str] | tuple[str, ...]
"""Text goes through `/bin/sh -c`; a list is run as it is, without a shell."""

DEFAULT_MAX_OUTPUT = 16 << 20
"""Bytes of stdout, and as many of stderr, that a Result holds unless told otherwise."""
DEFAULT_MAX_BYTES = 64 << 20
"""Bytes of a file that `files.read` holds unless told otherwise."""
LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what a command says, as it comes."""

    stream: StreamName
    """Where it was written to. What a terminal shows is all `stdout`."""
    data: bytes
    position: int = 0
    """Of its first byte among all output of the command: with `position + len(data)` one comes back for the next piece."""
    lost: int = 0
    """So many bytes right before this piece were not kept, because nobody was reading."""

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended."""

    code: int
    """Its exit code; 128 and the signal when a signal ended it."""
    signal: int = 0
    timed_out: bool = False
    out_of_memory: bool = False
    """The kernel ended it because the sandbox had used up its memory."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Exit:
        with understood():
            signal, out_of_memory = int(value.get("signal", 0)), bool(value.get("outOfMemory", False))
            return cls(int(value["code"]), signal, bool(value.get("timedOut", False)), out_of_memory)


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of one stream: all of it, or its beginning and its end."""

    head: bytes = b""
    tail: bytes = b""
    left_out: int = 0
    """Bytes between the two."""

    @property
    def data(self) -> bytes:
        return self.head + self.tail

    @property
    def text(self) -> str:
        if not self.left_out:
            return self.data.decode("utf-8", "replace")
        head, tail = self.head.decode("utf-8", "replace"), self.tail.decode("utf-8", "replace")
        return f"{head}\n[{self.left_out} bytes left out]\n{tail}"


@dataclass(frozen=True, slots=True)
class Result:
    """A command that has ended, and what it said."""

    command: str | tuple[str, ...]
    exit_code: int
    """128 and the signal when a signal ended it."""
    out: Captured = Captured()
    err: Captured = Captured()
    signal: int = 0
    """That ended it; 0 for none."""
    timed_out: bool = False
    """Its time limit ended it, with all that it had started; the output is what it said until then."""
    lost: int = 0
    """Bytes of output that were gone before they were read; only for a command that ran while nobody was reading."""
    out_of_memory: bool = False
    """The kernel ended it because the sandbox had used up its memory."""

    @property
    def stdout(self) -> str:
        """As text: bytes that are no UTF-8 become replacement characters, a cut shows as a line in brackets."""
        return self.out.text

    @property
    def stderr(self) -> str:
        return self.err.text

    @property
    def stdout_bytes(self) -> bytes:
        return self.out.data

    @property
    def stderr_bytes(self) -> bytes:
        return self.err.data

    @property
    def truncated(self) -> bool:
        """Whether `max_output` was exceeded: the beginning and the end were kept, the middle was left out."""
        return bool(self.out.left_out or self.err.left_out or self.lost)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process as the sandbox lists it."""

    id: str
    pid: int
    """Inside the sandbox."""
    argv: tuple[str, ...]
    cwd: str
    terminal: bool
    started: float
    """Seconds since 1970."""
    running: bool
    exit: Exit | None
    output_start: int
    """Position of the oldest byte of output that is still kept."""
    output_end: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ProcessInfo:
        with understood():
            end, output = value.get("exit"), value.get("output") or {}
            return cls(
                _id(value["id"]),
                int(value.get("pid", 0)),
                tuple(map(str, value.get("argv", ()))),
                str(value.get("cwd", "")),
                bool(value.get("terminal", False)),
                float(value.get("started", 0)),
                bool(value.get("running", False)),
                Exit.of(end) if end else None,
                int(output.get("start", 0)),
                int(output.get("end", 0)),
            )


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file, folder or symlink in the sandbox."""

    name: str
    path: str
    """As it was asked for; for an entry of a folder, that path and its name."""
    type: FileType
    size: int
    mode: int
    modified: float
    """Seconds since 1970."""
    uid: int
    gid: int
    target: str = ""
    """Where a symlink leads, as it is written."""

    @property
    def is_file(self) -> bool:
        return self.type == "file"

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"

    @property
    def is_symlink(self) -> bool:
        return self.type == "symlink"

    @classmethod
    def of(cls, value: Mapping[str, Any], path: str) -> FileInfo:
        with understood():
            kind = value.get("type")
            return cls(
                str(value["name"]),
                path,
                kind if kind in ("file", "directory", "symlink") else "other",
                int(value.get("size", 0)),
                int(str(value.get("mode", "0")), 8),
                float(value.get("modified", 0)),
                int(value.get("uid", 0)),
                int(value.get("gid", 0)),
                str(value.get("target", "")),
            )


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to a file below a watched folder."""

    change: str
    """`created`, `modified` (while it is written), `written` (closed after writing), `attributes`, `moved-from`, `moved-to`, `removed`;
    `overflow` when more happened than could be told: look for yourself."""
    path: str
    """Relative to the watched folder."""
    type: FileType = "file"

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Change:
        folder = value.get("type") == "directory"
        return cls(str(value.get("change", "")), str(value.get("path", "")), "directory" if folder else "file")


@dataclass(frozen=True, slots=True)
class Transfer:
    """What an upload or a download moved."""

    files: int
    size: int
    """Bytes of their contents."""
    skipped: tuple[str, ...] = ()
    """Not taken: sockets, devices and the like; on a download also symlinks that would lead out of the destination."""


def _id(value: object) -> str:
    """It is part of messages."""
    text = str(value)
    if not text.isprintable() or len(text) > LONGEST_ID:
        raise ValueError("this is no id")
    return text
