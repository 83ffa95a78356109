"""What runsc is told of sandboxes, containers and commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import ContainerPlan, ExecPlan, Limits, Mount, SandboxPlan, Stdio, User
from sandpool.node.runtimes.gvisor import requests
from sandpool.node.runtimes.gvisor.requests import (
    OVERHEAD_BYTES,
    check_command,
    container_config,
    exec_process,
    flags,
    machine_limits,
    rlimits,
    sandbox_config,
)

SANDBOX = SandboxPlan("uid", "h" * 80, Path("/pods/uid"), Limits(files=50))
PLAN = ContainerPlan(
    "main", ("sh", "-c", "true"), RootFs((Path("/layer"),)), {"PATH": "/bin", "A": "=b"}, "/work", read_only=True,
    mounts=(Mount("/data", Path("/src"), read_only=True), Mount("/mem", volume="m", size=5, owner=User(7, 8))),
)  # fmt: skip


def test_a_container_has_no_powers_and_joins_its_sandbox() -> None:
    told = container_config(PLAN, SANDBOX)
    process = told["process"]
    assert (process["capabilities"], process["noNewPrivileges"]) == ({}, True)
    assert (process["args"], process["cwd"]) == (["sh", "-c", "true"], "/work")
    assert process["env"] == ["PATH=/bin", f"HOSTNAME={'h' * 80}", "A==b"]
    assert told["root"]["readonly"] is True
    assert len(told["hostname"]) == 64
    assert told["annotations"]["io.kubernetes.cri.sandbox-id"] == "pod"
    assert [(each["destination"], each["source"], each["options"][1]) for each in told["mounts"][-2:]] == [
        ("/data", "/volumes/0", "ro"),
        ("/mem", "/volumes/1", "rw"),
    ]


def test_a_sandbox_is_one_and_cannot_be_written_to() -> None:
    told = sandbox_config(SANDBOX, ("relay",), [])
    assert told["annotations"] == {"io.kubernetes.cri.container-type": "sandbox"}
    assert told["root"]["readonly"] is True


def test_a_command_is_the_containers_with_changes() -> None:
    base = container_config(PLAN, SANDBOX)["process"] | {"user": {"uid": 5, "gid": 6}}
    told = exec_process(ExecPlan(("ls",), {"A": "other", "B": ""}, tty=True), base)
    assert (told["args"], told["cwd"], told["terminal"], told["user"]["uid"]) == (["ls"], "/work", True, 5)
    assert told["env"] == ["PATH=/bin", f"HOSTNAME={'h' * 80}", "A=other", "TERM=xterm", "B="]
    assert base["args"] == ["sh", "-c", "true"], "the container's own is not touched"
    assert exec_process(ExecPlan(("ls",), cwd="/x"), base)["cwd"] == "/x"


@pytest.mark.parametrize(
    ("argv", "env"), [((), {}), (("a\0b",), {}), (("a",), {"X": "\0"}), (("a",), {"": "x"}), (("a",), {"X=Y": "x"})]
)
def test_what_no_program_can_be_given_is_refused(argv: tuple[str, ...], env: dict[str, str]) -> None:
    with pytest.raises(NodeError) as refused:
        check_command(argv, env)
    assert refused.value.reason == "StartError"


def test_limits_leave_room_for_the_kernel_inside() -> None:
    assert machine_limits(Limits(cpu=0.5, memory=100, pids=10)) == Limits(0.5, 100 + OVERHEAD_BYTES, 10 * 4 + 256)
    assert machine_limits(Limits()) == Limits(pids=1024 * 4 + 256)
    files = {each["type"]: each["hard"] for each in rlimits(Limits(), SANDBOX.limits)}
    assert files == {"RLIMIT_CORE": 0, "RLIMIT_MEMLOCK": 8 << 20, "RLIMIT_NOFILE": 64}
    assert rlimits(Limits(files=1000), SANDBOX.limits)[-1]["soft"] == 1000


def test_the_writable_layer_has_the_size_of_the_plan() -> None:
    assert "--overlay2=root:dir=/state,size=4096" in flags(4096)
    assert "--overlay2=root:dir=/state" in flags(None)
    assert "--platform=systrap" in flags(None)


def test_volumes_in_memory_belong_to_whom_the_plan_says() -> None:
    one = {"name": "0", "size": 5, "owner": (1007, 1008)}
    assert requests.memory_volumes(PLAN, {"m": "0"}, 1000, ranged=True) == [one]
    assert requests.memory_volumes(PLAN, {"m": "0"}, 0, ranged=False) == [one | {"owner": (0, 0)}]


def test_files_are_passed_in_order_and_not_with_a_terminal() -> None:
    assert requests.stdio_given(Stdio(stdout=5)) == [False, True, False]
    assert requests.stdio_files(Stdio(3, None, 5), tty=False) == [3, 5]
    assert requests.stdio_files(Stdio(3, 4, 5), tty=True) == []


def test_the_relay_gets_its_port_and_the_folders_of_its_interpreter() -> None:
    told = requests.shim_request(SANDBOX, Path("/opt/runsc"), (0, 7, 65536), Path("/host"), ranged=True)["root"]
    args = told["files"]["config.json"]["process"]["args"]
    assert args[-2:] == ["3128", "/egress/socket"]
    assert (told["mounts"][0]["target"], told["mounts"][0]["source"]) == ("/egress", "/pods/uid/egress")
    assert all(mount["read_only"] for mount in told["mounts"][1:])
    assert Path(args[0]).exists()
