"""Where control groups are, on machines of all kinds, and what is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Bandwidth, Limits
from sandpool.node.runtimes.namespaces import cgroup_settings
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import (
    CgroupReader,
    ControllerPath,
    locate_controllers,
    parse_membership,
    parse_mounts,
)

HYBRID = """
24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
33 24 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
UNIFIED = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "30 24 0:26 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
BLOCK_IO = "30 24 0:26 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
NO_FREEZE = "30 24 0:26 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"


@pytest.mark.parametrize(
    ("mounts", "own", "offered", "found"),
    [
        (
            HYBRID,
            "4:memory:/user.slice\n3:cpu,cpuacct:/\n2:freezer:/\n0::/session",
            frozenset[str](),
            {
                "cpu": ControllerPath(1, "/sys/fs/cgroup/cpu,cpuacct"),
                "memory": ControllerPath(1, "/sys/fs/cgroup/memory/user.slice"),
                "unified": ControllerPath(2, "/sys/fs/cgroup/unified/session"),
            },
        ),
        (
            UNIFIED,
            "0::/user.slice/app",
            frozenset({"cpu", "memory", "pids", "io"}),
            {
                name: ControllerPath(2, "/sys/fs/cgroup/user.slice/app")
                for name in ("cpu", "memory", "pids", "io", "unified")
            },
        ),
        (
            CONTAINER,
            "4:memory:/docker/abc/inner",
            frozenset[str](),
            {"memory": ControllerPath(1, "/sys/fs/cgroup/memory/inner")},
        ),
        (CONTAINER, "4:memory:/elsewhere", frozenset[str](), {"memory": ControllerPath(1, "/sys/fs/cgroup/memory")}),
        (
            CONTAINER,
            "4:memory:/docker/abcdef",
            frozenset[str](),
            {"memory": ControllerPath(1, "/sys/fs/cgroup/memory")},
        ),
        (BLOCK_IO, "2:blkio:/own", frozenset[str](), {"io": ControllerPath(1, "/sys/fs/cgroup/blkio/own")}),
        (NO_FREEZE, "2:freezer:/", frozenset[str](), {"freezer": ControllerPath(1, "/sys/fs/cgroup/freezer")}),
        ("", "", frozenset[str](), {}),
    ],
    ids=["hybrid", "version 2", "in a container", "outside of it", "not a prefix", "disks", "version 1 alone", "none"],
)
def test_controllers_are_found_where_they_are(
    mounts: str, own: str, offered: frozenset[str], found: dict[str, ControllerPath]
) -> None:
    assert locate_controllers(parse_mounts(mounts), parse_membership(own), offered) == found


LIMITS = Limits(cpu=0.5, memory=1000, pids=7, io=Bandwidth("8:0", 50))
MIB = 1 << 20


def test_limits_are_written_as_each_version_wants_them() -> None:
    def written(version: int, name: str) -> dict[str, str]:
        return {file: value for file, value, _ in cgroup_settings.settings(version, name, LIMITS)}

    assert written(1, "memory") == {
        "memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "1000", "memory.swappiness": "0",
        "memory.kmem.tcp.limit_in_bytes": str(8 * MIB),
    }  # fmt: skip
    assert written(2, "memory") == {"memory.max": "1000", "memory.swap.max": "0"}
    assert written(1, "cpu") == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}
    assert written(2, "cpu") == {"cpu.max": "50000 100000"}
    assert written(1, "pids") == written(2, "pids") == {"pids.max": "7"}
    assert written(1, "io") == {"blkio.throttle.read_bps_device": "8:0 50", "blkio.throttle.write_bps_device": "8:0 50"}
    assert written(2, "io") == {"io.max": "8:0 rbps=50 wbps=50"}
    assert cgroup_settings.settings(2, "cpu", Limits(cpu=0.001)) == [("cpu.max", "1000 100000", True)]
    assert [cgroup_settings.settings(2, name, Limits()) for name in ("memory", "cpu", "pids")] == [[], [], []]


def test_buffers_of_sockets_have_a_limit_where_memory_does_not_count_them() -> None:
    def of_a_sandbox(version: int, limits: Limits) -> list[str]:
        ((_, found),) = cgroup_settings.sandbox_groups({"memory": ControllerPath(version, "/m")}, "pod", limits)
        return [value for file, value, _ in found if file == cgroup_settings.SOCKETS]

    assert of_a_sandbox(1, Limits()) == [str(256 * MIB)]
    assert of_a_sandbox(1, Limits(memory=1024 * MIB)) == [str(128 * MIB)]
    assert of_a_sandbox(2, Limits()) == of_a_sandbox(2, Limits(memory=MIB)) == []
    made, _ = cgroup_settings.container_groups(
        {"memory": ControllerPath(1, "/m")}, "pod", "main", Limits(memory=80 * MIB)
    )
    assert (cgroup_settings.SOCKETS, str(10 * MIB), False) in made[0][1]  # a group without it would not be counted
    assert cgroup_settings.socket_bytes_of_all(800 * MIB, "100 200 300", 4096) == 200 * 4096 // 2
    assert cgroup_settings.socket_bytes_of_all(800 * MIB, "", 4096) == 100 * MIB


def test_sandboxes_together_weigh_as_much_as_the_machine_has_cpus() -> None:
    assert cgroup_settings.weight(1, 2) == ("cpu.shares", "2048", False)
    assert cgroup_settings.weight(2, 2) == ("cpu.weight", "200", False)
    assert cgroup_settings.weight(2, 128) == ("cpu.weight", "10000", False)  # the most there is


def test_on_version_1_a_container_has_a_group_of_its_own_only_for_limits_of_its_own() -> None:
    places = {"memory": ControllerPath(1, "/m"), "pids": ControllerPath(1, "/p")}
    assert [path for path, _ in cgroup_settings.sandbox_groups(places, "pod", LIMITS)] == ["/m/pod", "/p/pod"]
    made, joined = cgroup_settings.container_groups(places, "pod", "main", Limits(memory=500))
    assert ([path for path, _ in made], joined) == (["/m/pod/main"], ["/m/pod/main", "/p/pod"])
    assert cgroup_settings.container_groups(places, "pod", "main", Limits()) == ([], ["/m/pod", "/p/pod"])


def test_on_version_2_processes_are_in_leaves() -> None:
    places = {name: ControllerPath(2, "/u") for name in ("memory", "pids", "unified")}
    ((path, values),) = cgroup_settings.sandbox_groups(places, "pod", LIMITS)
    assert path == "/u/pod"
    assert values[-1] == ("cgroup.subtree_control", "+memory +pids", True)
    assert cgroup_settings.container_groups(places, "pod", "main", Limits()) == ([("/u/pod/main", [])], ["/u/pod/main"])
    bare = {"unified": ControllerPath(2, "/u")}
    assert cgroup_settings.sandbox_groups(bare, "pod", LIMITS) == [("/u/pod", [])]
    assert cgroup_settings.container_groups(bare, "pod", "main", Limits()) == ([], ["/u/pod"])


def test_what_containers_share_is_made_where_memory_is_counted() -> None:
    one = {"memory": ControllerPath(1, "/m"), "pids": ControllerPath(1, "/p")}
    assert cgroup_settings.shared_groups(one, "pod") == ([], ["/m/pod"])
    two = {name: ControllerPath(2, "/u") for name in ("memory", "pids", "unified")}
    assert cgroup_settings.shared_groups(two, "pod") == ([("/u/pod/-shared", [])], ["/u/pod/-shared"])
    assert cgroup_settings.shared_groups({"pids": ControllerPath(1, "/p")}, "pod") == ([], [])


def test_use_is_read_of_both_versions(tmp_path: Path) -> None:
    def place(version: int, name: str, **files: str) -> ControllerPath:
        folder = tmp_path / f"{version}{name}"
        (folder / "pod").mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / "pod" / file.replace("_", ".", 1)).write_text(text)
        return ControllerPath(version, str(folder))

    one = CgroupReader({
        "memory": place(1, "memory", memory_usage_in_bytes="5000\n", memory_stat="cache 1\ntotal_inactive_file 1000\n",
                        memory_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
        "cpuacct": place(1, "cpuacct", cpuacct_usage="1500000000\n"),
        "pids": place(1, "pids", pids_current="4\n"),
    })  # fmt: skip
    assert one.usage("pod") == (1.5, 4000, 4)
    assert one.ooms([f"{one.places['memory'].directory}/pod"]) == 3
    shared = place(2, "all", memory_current="5000\n", memory_stat="inactive_file 4999\n", pids_current="4\n",
                   cpu_stat="usage_usec 2500000\nuser_usec 1\n", memory_events="low 0\noom 1\noom_kill 2\n")  # fmt: skip
    two = CgroupReader(dict.fromkeys(("memory", "cpu", "pids", "unified"), shared))
    assert two.usage("pod") == (2.5, 1, 4)
    assert two.ooms([f"{shared.directory}/pod"]) == 2
    assert CgroupReader({}).usage("pod") == (None, None, None)
    assert CgroupReader({}).ooms(["/x"]) == 0
