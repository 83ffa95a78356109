"""A log of short lines is taken apart beside the event loop, which serves everybody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sandpool.node.pods.logs.files import LogWriter
from sandpool.node.pods.logs.reading import Text, Wanted, read_log
from sandpool.node.pods.threads import Threads


async def test_lines_are_taken_apart_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []
    of = Text.of
    monkeypatch.setattr(Text, "of", lambda text, block: seen.append(threading.current_thread()) or of(text, block))
    writer = LogWriter(tmp_path, 1, 1 << 20, 2)
    writer.write(b"2026-01-01T12:00:00.000000000Z", 1, b"\n" * 10_000)
    writer.close()
    threads = Threads("test", 1)
    try:
        read = b"".join([piece async for piece in read_log(tmp_path, 1, Wanted(), None, threads)])
    finally:
        threads.close()
    assert read == b"\n" * 10_000
    assert threading.main_thread() not in seen
    assert len(seen) > 3
