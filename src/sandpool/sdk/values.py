"""The values that the SDK returns: frozen, and shared by its asynchronous and its synchronous half.

Text is decoded with replacement characters for invalid UTF-8, so reading output never fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sandpool.sdk.answers import understood

StreamName = Literal["stdout", "stderr"]
FileType = Literal["file", "directory", "symlink", "other"]
Command = str | list[str] | tuple[str, ...]
"""Text runs through `/bin/sh -c`; a list runs without a shell."""

DEFAULT_MAX_OUTPUT = 16 << 20
"""Default for the bytes of stdout, and of stderr, that a Result holds."""
DEFAULT_MAX_BYTES = 64 << 20
"""Default for the largest file that `files.read` reads."""
LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output."""

    stream: StreamName
    """Which stream it was written to. Output of a terminal is always `stdout`."""
    data: bytes
    position: int = 0
    """Offset of its first byte in the command's output; the next piece begins at `position + len(data)`."""
    lost: int = 0
    """Bytes right before this piece that were dropped because nobody was reading."""

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended."""

    code: int
    """Its exit code; 128 plus the signal number if a signal ended it."""
    signal: int = 0
    timed_out: bool = False
    out_of_memory: bool = False
    """The kernel killed it because the sandbox ran out of memory."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Exit:
        with understood():
            signal, out_of_memory = int(value.get("signal", 0)), bool(value.get("outOfMemory", False))
            return cls(int(value["code"]), signal, bool(value.get("timedOut", False)), out_of_memory)


@dataclass(frozen=True, slots=True)
class Captured:
    """The captured output of one stream: all of it, or its beginning and its end."""

    head: bytes = b""
    tail: bytes = b""
    left_out: int = 0
    """Bytes left out between the two."""

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
    """A command that has ended, with its exit code and output."""

    command: str | tuple[str, ...]
    exit_code: int
    """128 plus the signal number if a signal ended it."""
    out: Captured = Captured()
    err: Captured = Captured()
    signal: int = 0
    """The signal that ended it, or 0."""
    timed_out: bool = False
    """It was killed at its `timeout`, with everything it had started; the output is what it wrote until then."""
    lost: int = 0
    """Bytes of output that were dropped because nobody was reading."""
    out_of_memory: bool = False
    """The kernel killed it because the sandbox ran out of memory."""

    @property
    def stdout(self) -> str:
        """The output as text. Invalid UTF-8 becomes replacement characters; a cut shows as a line in brackets."""
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
        """Whether output is missing: with more than `max_output` bytes, only the beginning and the end are kept."""
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
    """Offset of the oldest output that is still kept."""
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
    """A file, directory or symlink in the sandbox."""

    name: str
    path: str
    """The path you asked for; for an entry of a directory, that path plus the name."""
    type: FileType
    size: int
    mode: int
    modified: float
    """Seconds since 1970."""
    uid: int
    gid: int
    target: str = ""
    """The target of a symlink, unresolved."""

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
    """A change of a file below a watched directory."""

    change: str
    """`created`, `modified` (while it is written), `written` (closed after writing), `attributes`, `moved-from`, `moved-to`, `removed`;
    `overflow` when events were dropped: list the directory yourself."""
    path: str
    """Relative to the watched directory."""
    type: FileType = "file"

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Change:
        directory = value.get("type") == "directory"
        return cls(str(value.get("change", "")), str(value.get("path", "")), "directory" if directory else "file")


@dataclass(frozen=True, slots=True)
class Transfer:
    """What an upload or download transferred."""

    files: int
    size: int
    """Total bytes of their contents."""
    skipped: tuple[str, ...] = ()
    """What was skipped: sockets, devices and the like; on a download also symlinks that lead out of the destination."""


def _id(value: object) -> str:
    """Checked, because it becomes part of messages."""
    text = str(value)
    if not text.isprintable() or len(text) > LONGEST_ID:
        raise ValueError("not an id")
    return text
