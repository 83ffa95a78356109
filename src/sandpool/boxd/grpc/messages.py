"""The messages of process.v1.ProcessService, from and to bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.boxd.grpc.protobuf import Malformed, content, fields, number, packed, text
from sandpool.boxd.processes.process import Exit
from sandpool.boxd.processes.spec import Size, Spec
from sandpool.wire.codes import Code, Refused


@dataclass(frozen=True, slots=True)
class Told:
    """A request about a process that runs."""

    process: str
    input: bytes | None = None
    ends: bool = False
    signal: int = 0
    size: Size | None = None


def execute_request(data: bytes) -> Spec:
    return _spec(data, feeds=False)


def start_request(data: bytes) -> Spec:
    return _spec(data, feeds=True)


def _spec(data: bytes, *, feeds: bool) -> Spec:
    config, terminal = _Config(), None
    for at, value in fields(data):
        if at == 1:
            config = _config(content(value))
        elif at == 2:
            terminal = _terminal(content(value))
    if not config.command:
        raise Refused(Code.INVALID, "config.command must name a program")
    return Spec(tuple(config.command), config.env, config.cwd, terminal=terminal, feeds=feeds)


@dataclass(slots=True)
class _Config:
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


def _config(data: bytes) -> _Config:
    found = _Config()
    for at, value in fields(data):
        if at == 1:
            found.command.append(_plain(text(value)))
        elif at == 2:
            name, worth = "", ""
            for part, inner in fields(content(value)):
                name, worth = (text(inner), worth) if part == 1 else (name, text(inner))
            found.env[_plain(name)] = _plain(worth)
        elif at == 3:
            found.cwd = _plain(text(value))
    return found


def _terminal(data: bytes) -> Size:
    sizes = {at: number(value) & 0xFFFF for at, value in fields(data)}
    return Size(sizes.get(1) or 80, sizes.get(2) or 24)


def _plain(word: str) -> str:
    if "\0" in word:
        raise Refused(Code.INVALID, "a text holds a null character")
    return word


def stdin_request(data: bytes) -> Told:
    process, given, ends = "0", None, False
    for at, value in fields(data):
        if at == 1:
            process = _id(number(value))
        elif at == 2:
            given = content(value)
        elif at == 3:
            ends = True
    return Told(process, given, ends)


def signal_request(data: bytes) -> Told:
    found = {at: number(value) for at, value in fields(data)}
    return Told(_id(found.get(1, 0)), signal=found.get(2, 0))


def resize_request(data: bytes) -> Told:
    found = {at: number(value) for at, value in fields(data)}
    return Told(_id(found.get(1, 0)), size=Size(found.get(2, 0) & 0xFFFF, found.get(3, 0) & 0xFFFF))


def _id(value: int) -> str:
    if value >= 1 << 31:
        raise Malformed("a process has no such number")
    return str(value)


def started(process: str) -> bytes:
    return packed(1, packed(1, int(process)))


def output(data: bytes, *, error: bool) -> bytes:
    return packed(3 if error else 2, data)


def ended(end: Exit) -> bytes:
    return packed(4, packed(1, _code(end)))


def executed(end: Exit, stdout: bytes, stderr: bytes) -> bytes:
    return packed(1, _code(end)) + packed(2, stdout) + packed(3, stderr)


def _code(end: Exit) -> int:
    """As the service has it: -1 when a signal ended it."""
    return -1 if end.signal else end.code
