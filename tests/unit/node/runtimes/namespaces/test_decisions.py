"""Small decisions: who a user is, which limits hold where, what the kernel's words mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Ended, Limits
from sandpool.node.runtimes.namespaces import probe, spawn_requests
from sandpool.node.runtimes.namespaces.container import as_ended
from sandpool.node.runtimes.namespaces.forked import init, namespaces, processes
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.identity import decide
from sandpool.node.runtimes.namespaces.runtime import counts_processes

PASSWD = "root:x:0:0:root:/root:/bin/sh\nbroken\nalice:x:1000:1001::/home/alice:/bin/sh\nodd:x:abc:1::/:\nno:x:5:6::relative:\n"
GROUP = "root:x:0:\nstaff:x:50:alice,bob\nbig:x:99999999:alice\nwheel:x:10:alice\n"


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("", (0, 0, (), "/root")),
        ("root", (0, 0, (), "/root")),
        ("alice", (1000, 1001, (50, 10), "/home/alice")),
        ("1000", (1000, 1001, (50, 10), "/home/alice")),
        ("alice:staff", (1000, 50, (), "/home/alice")),
        ("alice:77", (1000, 77, (), "/home/alice")),
        ("4242", (4242, 0, (), "/")),
        ("4242:4343", (4242, 4343, (), "/")),
        ("no", (5, 6, (), "/")),
    ],
)
def test_a_user_is_looked_up_in_the_image(user: str, found: tuple[object, ...]) -> None:
    identity = decide(user, (), PASSWD, GROUP)
    assert (identity.uid, identity.gid, identity.groups, identity.home) == found


@pytest.mark.parametrize("user", ["bob", "odd", "alice:nogroup", "70000", "1:70000", "-1", "\u0661", "9" * 30])
def test_a_user_that_is_not_there_is_refused(user: str) -> None:
    with pytest.raises(Refused) as caught:
        decide(user, (), PASSWD, GROUP)
    assert caught.value.reason == "CreateContainerConfigError"


def test_groups_are_added_and_bounded() -> None:
    assert decide("alice", (7, 50), PASSWD, GROUP).groups == (50, 10, 7)
    with pytest.raises(Refused):
        decide("alice", (70000,), PASSWD, GROUP)


def test_limits_hold_somewhere() -> None:
    full = Limits(cpu=1, memory=100, pids=5, files=20)
    assert spawn_requests.with_defaults(Limits()).pids == spawn_requests.DEFAULT_PIDS + 1
    assert spawn_requests.stricter(full, full) == Limits()
    assert spawn_requests.stricter(full, Limits(memory=200)) == Limits(cpu=1, memory=100, pids=5)
    by_group = spawn_requests.rlimits(full, full, frozenset({"memory"}), count_processes=True, most_files=5000)
    assert by_group == {
        "CORE": 1, "NICE": 0, "RTPRIO": 0, "MEMLOCK": spawn_requests.LOCKED_BYTES, "MSGQUEUE": spawn_requests.QUEUED_BYTES, "SIGPENDING": spawn_requests.PENDING_SIGNALS,
        "NOFILE": spawn_requests.LEAST_FILES, "NPROC": 6,
    }  # fmt: skip
    by_process = spawn_requests.rlimits(full, Limits(), frozenset(), count_processes=False, most_files=5000)
    assert by_process["DATA"] == 100
    many = spawn_requests.rlimits(Limits(files=9000), Limits(), frozenset(), count_processes=False, most_files=5000)
    assert many["NOFILE"] == 5000
    assert (spawn_requests.in_memory(None), spawn_requests.in_memory(1 << 20), spawn_requests.in_memory(1 << 40)) == (
        None,
        1 << 20,
        None,
    )


def test_sandboxes_of_the_same_user_have_fewer_files_than_we() -> None:
    """Else one of them could keep us from sending files, as we do with each command."""
    assert spawn_requests.most_files(20_000, ranged=True) == spawn_requests.DEFAULT_FILES
    assert spawn_requests.most_files(20_000, ranged=False) == 10_000
    assert spawn_requests.most_files(100, ranged=False) == spawn_requests.LEAST_FILES


def test_containers_of_a_sandbox_share_its_terminals() -> None:
    given: list[int] = []
    for _ in range(8):
        given.append(spawn_requests.terminal_quota(given))
    assert given == [64, 32, 16, 8, 4, 4, 4, 4]
    assert spawn_requests.terminal_quota([], left=100) == 14  # what others hold of those that have ended is not
    assert spawn_requests.terminal_quota([], left=200) == spawn_requests.LEAST_TERMINALS
    assert spawn_requests.terminal_quota(given[1:]) > 16  # what one had that has ended is there for others


def test_an_ordinary_user_keeps_half() -> None:
    whole = {"max_inotify_instances": 128, "max_inotify_watches": 8192}
    assert namespaces.quotas_of_all(whole) == {"max_inotify_instances": 64, "max_inotify_watches": 4096}
    assert namespaces.sandbox_quotas(whole) == {"max_inotify_instances": 16, "max_inotify_watches": 1024}
    assert namespaces.sandbox_quotas({"max_inotify_instances": 8}) == {"max_inotify_instances": namespaces.LEAST}
    assert set(namespaces.user_quotas()) <= set(namespaces.COUNTED)


@pytest.mark.parametrize(
    ("release", "counts"), [("6.18.44-x", True), ("5.14.0", True), ("5.13.1", False), ("4.19", False), ("odd", False)]
)
def test_old_kernels_count_processes_of_a_person(release: str, counts: bool) -> None:
    assert counts_processes(release) is counts


@pytest.mark.parametrize(
    ("status", "oom", "ended"),
    [
        (0, False, Ended(0)),
        (3 << 8, True, Ended(3)),
        (9, False, Ended(137, 9)),
        (9, True, Ended(137, 9, True)),
        (15, True, Ended(143, 15)),
        (0x8B, False, Ended(139, 11)),
    ],
)
def test_an_end_is_told_as_kubernetes_does(status: int, oom: bool, ended: Ended) -> None:
    assert as_ended(status, oom=oom) == ended


@pytest.mark.parametrize("status", [None, "0", -1, 1 << 20, 0x137F, 1.5])
def test_an_end_that_makes_no_sense_is_a_lost_one(status: object) -> None:
    assert as_ended(status).code == 137


def test_names_of_processes_mean_nothing() -> None:
    line = "7 (a) R 1 (b)) S 3 7 8 0 -1 4 1 1 1 1 100 50 7 3 20 0 1 0 9 8192 12 1844"
    process = processes.parse(line)
    assert process == processes.Process(7, 3, 8, 150, 10, 12)
    assert processes.parse("7 (x) S") is None
    assert processes.parse("") is None


def test_descendants_are_found_through_sessions_and_parents() -> None:
    tree = {2: (1, 2), 3: (2, 2), 4: (3, 4), 5: (1, 2), 6: (5, 6), 9: (1, 9), 1: (0, 0)}
    found = [processes.Process(pid, parent, session, 1, 2, 3) for pid, (parent, session) in tree.items()]
    assert processes.descendants(found, 2) == {2, 3, 4, 5, 6}
    assert processes.descendants(found, 9) == {9}
    seconds, memory, count = processes.usage(found)
    assert (count, memory) == (6, 18 * os.sysconf("SC_PAGE_SIZE"))
    assert seconds == (7 + 2) / os.sysconf("SC_CLK_TCK")


def test_programs_are_looked_for_as_a_shell_does(tmp_path: Path) -> None:
    for folder, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "prog").write_text("")
        (tmp_path / folder / "prog").chmod(mode)
    (tmp_path / "one" / "folder").mkdir()
    search = f"{tmp_path}/none:{tmp_path}/one:{tmp_path}/two"
    assert init.find_program("prog", search) == f"{tmp_path}/two/prog"
    assert init.find_program("./prog", search) == "./prog"
    with pytest.raises(PermissionError):
        init.find_program("prog", f"{tmp_path}/one")
    for name in ("folder", "missing", ""):
        with pytest.raises(FileNotFoundError):
            init.find_program(name, search)


GOOD = """self 2
status CapBnd:\t0000000000000000
status NoNewPrivs:\t1
status Seccomp:\t2
net Inter-| Receive
net lo: 0 0
count 20
eater 137
"""


def test_a_probe_believes_only_what_was_tried() -> None:
    every = {
        "filesystem",
        "network",
        "processes",
        "capabilities",
        "seccomp",
        "landlock",
        "pids",
        "storage",
        "memory",
        "cpu",
    }
    assert probe.judge(GOOD, frozenset({"cpu"}), landlock=True) == every
    worse = {
        "filesystem": GOOD + "saw outside", "network": GOOD + "net eth0: 1", "processes": GOOD.replace("self 2", "self 4711"),
        "capabilities": GOOD.replace("0000000000000000", "0000000000000400"), "seccomp": GOOD.replace("Seccomp:\t2", "Seccomp:\t0"),
        "pids": GOOD.replace("count 20", "count 49"), "storage": GOOD + "stored", "memory": GOOD.replace("137", "1"),
    }  # fmt: skip
    for name, said in worse.items():
        assert probe.judge(said, frozenset({"cpu"}), landlock=True) == every - {name}
    assert probe.judge("", frozenset(), landlock=False) == {"storage"}
    assert "memory" in probe.enforcement_note(frozenset({"cpu", "pids", "storage", "landlock"}))


def test_advice_names_the_setting() -> None:
    settings = {
        "/proc/sys/user/max_user_namespaces": "0",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    words = probe.advice(lambda path: settings.get(path, ""))
    assert len(words) == 2
    assert "user.max_user_namespaces" in words[0]
    assert "AppArmor" in words[1]
