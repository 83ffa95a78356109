"""What is held where only root can hold it: the speed of a disk, and the machine's table of open files."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Limits, Stdio
from sandpool.node.runtimes.namespaces import cgroup_settings
from sandpool.node.runtimes.namespaces.fork_server import isolated_python
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from support.node.sandboxes import FOREVER, Bench, opened, script_in, shell

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
RATE = 1 << 20
CAP_SYS_RESOURCE = 24
MANY = "50000000"  # open files: nobody else on this machine may notice
WRITE = """
python3 -c '
import mmap, os, sys
file = os.open("/var/tmp/direct", os.O_WRONLY | os.O_CREAT | os.O_DIRECT); part = mmap.mmap(-1, 1 << 18)
for number in range(int(sys.argv[1])): os.write(file, part)
print("written")
' {0}
"""


async def test_who_writes_fast_is_overtaken(tmp_path: Path) -> None:
    """Six seconds' worth for the one with a limit; the other has written before that, however slow the disk is."""
    runtime = NamespacesRuntime(tmp_path / "runtime", installation=f"disk{os.getpid()}", io_rate=RATE)
    await runtime.open()
    try:
        if "io" not in runtime.runtime_host.cgroups.places:
            pytest.skip(f"no control group of disks can be made here: {runtime.unheld(Limits())}")
        limited = Bench(runtime, tmp_path / "limited")
        limited.folder.mkdir()
        async with (
            opened(tmp_path / "free", f"free{os.getpid()}") as free,
            limited.sandbox() as hog,
            free.sandbox() as other,
        ):
            slow, quick = [await each.start(shell(FOREVER), Stdio()) for each in (hog, other)]
            writing = asyncio.create_task(script_in(slow, WRITE.format(24)))
            while (await script_in(slow, "test -s /var/tmp/direct")).ended.code:
                pass
            assert (await script_in(quick, WRITE.format(2))).text == "written\n"
            assert not writing.done()
            place = runtime.runtime_host.cgroups.places["io"]
            assert str(RATE) in read_settings(Path(place.directory, hog.plan.id), place.version)
            writing.cancel()
    finally:
        await runtime.close()


def read_settings(group: Path, version: int) -> str:
    return (group / ("blkio.throttle.write_bps_device" if version == 1 else "io.max")).read_text()


async def test_groups_of_disks_are_made_only_where_they_do_something(tmp_path: Path) -> None:
    async with opened(tmp_path, f"disk{os.getpid()}") as bench:
        groups = bench.runtime.runtime_host.cgroups
        disk = cgroup_settings.disk_of(tmp_path)
        costs = Path("/sys/fs/cgroup/io.cost.qos")
        shared = cgroup_settings.shares_by_weight(disk, costs.read_text() if costs.exists() else "")
        assert ("io" in groups.places) <= shared
        assert bench.runtime.unheld(Limits()) == ""


async def test_one_sandbox_cannot_fill_the_machines_table_of_files(tmp_path: Path) -> None:
    """Files are memory of whoever opens them; the number for the whole machine is no bound that anybody could reach."""
    setting = Path("/proc/sys/fs/file-max")
    before = setting.read_text()
    try:
        setting.write_text(MANY)
    except OSError:
        pytest.skip("this machine's settings cannot be written")
    try:
        async with opened(tmp_path, f"disk{os.getpid()}"):
            assert int(setting.read_text()) == 2**63 - 1
    finally:
        setting.write_text(before)


async def test_core_files_go_nowhere_also_where_the_operator_has_none(tmp_path: Path) -> None:
    """At 0 bytes the kernel starts the program that `kernel.core_pattern` may name; at 1 it does not."""
    if not int(re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[0], 16) >> CAP_SYS_RESOURCE & 1:
        pytest.skip("root may not raise limits here")
    entry = ("/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *isolated_python())
    async with opened(tmp_path, f"core{os.getpid()}", entry) as bench:
        assert (await bench.said("grep core /proc/self/limits | tr -s ' '")).text == "Max core file size 1 1 bytes \n"
