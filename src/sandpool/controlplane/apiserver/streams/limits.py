"""How much the streams of pods may take. Everything that a client or a sandbox can make grow has a number here."""

from __future__ import annotations

from dataclasses import dataclass

FILES = 8
"""Open files that one stream takes, roughly: its connection, three pipes and what carries them."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    connections: int = 2_000  # exec, attach, port-forward and logs at once
    streams: int = 1_024  # of one SPDY connection; a forwarded connection has two
    held: int = 256 * 1024  # bytes that wait on one stream before its connection is not read on
    answers: int = 1024 * 1024  # bytes of answers to frames that wait for a client that does not read
    opening: float = 30.0  # seconds for a client to open the streams that it needs
    stuck: float = 60.0  # seconds that one forwarded connection may hold up the others of its client
    quiet: float = 10.0  # seconds between signs of life to the client, and between looks whether it is there
    idle: float = 4 * 3600.0  # seconds without a byte either way before a connection is ended
    linger: float = 5.0  # seconds for the client to close after the end
    first_line: float = 1.0  # seconds that a log may take to begin before the answer begins without it
    ports: int = 32  # of one port-forward over channels


def for_files(files: int) -> StreamLimits:
    """No more streams than half of so many open files are enough for."""
    return StreamLimits(connections=max(8, min(2_000, files // 2 // FILES)))
