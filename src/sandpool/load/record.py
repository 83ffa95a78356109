"""The record of each claim, and of the pool's level, and their JSON lines in a file.

Times are seconds since the start of the run. A raw file is one line that says what was run (`kind: run`), then lines of
`kind: claim` and `kind: pool`. Readers skip unknown kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from sandpool.load.arrivals import MOST, Arrival
from sandpool.load.errors import LoadError

LONGEST_LINE = 1 << 20


class ClaimRecord(msgspec.Struct, kw_only=True, tag_field="kind", tag="claim", omit_defaults=True, gc=False):
    """One claim. `scheduled` is when the shape wanted it, `sent` when it left this process."""

    name: str
    pool: str = ""
    scheduled: float = 0.0
    sent: float | None = None
    answered: float | None = None
    ready: float | None = None
    first_output: float | None = None
    files: float | None = None  # seconds until a file was written and read back
    release_sent: float | None = None
    released: float | None = None
    created: int = 0  # the server's revision that made it, and the one that made it Ready; 0: not known
    served: int = 0
    sandbox: str = ""
    warm: bool | None = None
    throttled: int = 0  # answers of 429
    turned_away: bool = False  # not admitted within its timeout: it waited to be sent, or was throttled
    reason: str = ""  # the last message of its Ready condition, if it never became true
    error: str = ""  # why it counts as failed
    step: float | None = None  # of a ramp: the rate at which it came

    @property
    def latency(self) -> float | None:
        """From when it should have been sent, so that a server that stalls the client does not hide its latency."""
        return None if self.ready is None else self.ready - self.scheduled

    @property
    def admitted(self) -> bool:
        """Whether the server admitted it."""
        return self.answered is not None or self.created > 0 or self.ready is not None

    @property
    def not_sent(self) -> bool:
        """It was never sent: all connections were busy until its timeout."""
        return self.turned_away and self.sent is None

    @property
    def latency_from_sent(self) -> float | None:
        return None if self.ready is None or self.sent is None else self.ready - self.sent


_MOMENTS = ("scheduled", "sent", "answered", "ready", "first_output", "release_sent", "released")


def later(record: ClaimRecord, seconds: float, step: float) -> ClaimRecord:
    """The same claim in a run that began so many seconds earlier."""
    moved = {name: at + seconds for name in _MOMENTS if (at := getattr(record, name)) is not None}
    return msgspec.structs.replace(record, **moved, step=step)


class PoolLevel(msgspec.Struct, kw_only=True, tag_field="kind", tag="pool"):
    """How many members could be claimed at a moment."""

    at: float
    ready: int
    step: float | None = None


class RunHeader(msgspec.Struct, kw_only=True, tag_field="kind", tag="run"):
    result: dict[str, Any]


class _Unknown(msgspec.Struct):
    kind: str = ""


class _Traced(msgspec.Struct):
    """A line of a trace: as this program keeps them, or written by hand."""

    kind: str = "claim"
    scheduled: float | None = None
    offset: float | None = None
    pool: str = ""


Line = ClaimRecord | PoolLevel | RunHeader
_LINE = msgspec.json.Decoder(Line)
_KIND = msgspec.json.Decoder(_Unknown)
_TRACED = msgspec.json.Decoder(_Traced)
_KINDS = {"claim", "pool", "run"}


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for line in lines:
            file.write(encoder.encode(line) + b"\n")


def read_lines(path: Path) -> Iterator[Line]:
    for number, text in _texts(path):
        try:
            if _KIND.decode(text).kind in _KINDS:
                yield _LINE.decode(text)
        except msgspec.DecodeError as error:
            raise LoadError(f"{path} line {number}: {error}; is this a file that --raw wrote?") from error


def read_trace(path: Path) -> list[Arrival]:
    """Arrivals from lines as --raw keeps them, or `{"offset": 1.5, "pool": "python"}`."""
    found = []
    for number, text in _texts(path):
        try:
            line = _TRACED.decode(text)
        except msgspec.DecodeError as error:
            raise LoadError(f'{path} line {number}: {error}; a line is {{"offset": 1.5, "pool": "python"}}') from error
        offset = line.offset if line.offset is not None else line.scheduled
        if line.kind != "claim":
            continue
        if offset is None or not 0 <= offset < 1e9:
            raise LoadError(f"{path} line {number}: offset is {offset}; give the seconds after the start")
        found.append(Arrival(offset, line.pool))
        if len(found) > MOST:
            raise LoadError(f"{path}: more than {MOST} arrivals; replay a part of it")
    return found


def _texts(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, text in enumerate(_bounded(file), 1):
            if len(text) > LONGEST_LINE:
                raise LoadError(f"{path} line {number}: longer than {LONGEST_LINE} bytes; is this a raw file?")
            if text.strip():
                yield number, text


def _bounded(file: BinaryIO) -> Iterator[bytes]:
    while text := file.readline(LONGEST_LINE + 1):
        yield text
