"""What an earlier process left: found at once, and removed beside everything else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandpool.base.clock import SystemClock
from sandpool.node.pods.folders import Folders
from sandpool.node.pods.left import Left
from sandpool.node.pods.threads import Threads
from support.pod_parts import FolderVolumes


async def test_nobody_waits_for_the_files_that_sandboxes_left(tmp_path: Path) -> None:
    """However many there are: a tenant who makes millions does not keep the machine from starting."""
    pods = tmp_path / "pods"
    for name in ("uid-1/sandbox/main-0/root-upper", "uid-2/sandbox", ".trash/begun/0"):
        (pods / name).mkdir(parents=True)
        for number in range(20):
            (pods / name / str(number)).touch()
    (pods / "uid-1" / "logs").mkdir()
    threads = Threads("test", 1)
    left = Left(Folders(pods), FolderVolumes(tmp_path / "volumes"), SystemClock(), threads)
    try:
        await left.find(kept=1000)
        assert sorted(path.name for path in pods.iterdir()) == [".trash", "uid-1", "uid-2"]
        assert [path.name for path in (pods / "uid-1").iterdir()] == ["logs"]
        assert len(list((pods / ".trash").rglob("19"))) == 3, "they were waited for"
        async with asyncio.timeout(30):
            while list((pods / ".trash").iterdir()):
                await asyncio.sleep(0.01)
    finally:
        await left.close()
        threads.close()
