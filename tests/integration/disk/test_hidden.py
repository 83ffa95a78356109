"""What processes hold on disk that has no name any more, looked for in this machine's own /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandpool.node.pods import hidden as module
from sandpool.node.pods.hidden import TOO_MANY, hidden

IN_A_FOLDER = """
import os, sys
os.mkdir("d"); os.chdir("d")
for i in range(4000): os.close(os.open(str(i).rjust(240, "x"), os.O_CREAT))
for name in os.listdir(): os.unlink(name)
os.rmdir("../d")
print(flush=True); sys.stdin.read()
"""
WAITS = "import sys; print(flush=True); sys.stdin.read()"


def held(script: str, folder: Path) -> int | None:
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        try:
            return hidden([process.pid], "no such mark", folder)
        finally:
            process.stdin.close()


def test_a_folder_that_somebody_is_in_counts(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_files == 0 or os.stat(tmp_path).st_blocks == 0:
        pytest.skip("folders of this file system take no blocks")
    found = held(IN_A_FOLDER, tmp_path)
    assert found is not None
    assert found > 500_000


def test_more_memory_maps_than_anybody_needs_are_not_read_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert held(WAITS, tmp_path) == 0
    monkeypatch.setattr(module, "MOST_MAPPED", 5)
    assert held(WAITS, tmp_path) == TOO_MANY
