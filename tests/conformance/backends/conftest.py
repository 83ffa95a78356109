"""Every test of this folder runs on each backend that works on this machine: those that pretend in virtual time, the others in real time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from conformance.backends.subject import Subject
from sandpool.base.clock import LoopClock, SystemClock
from sandpool.node.backend import Backend, Probe
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.pods.context import PodsOptions
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from support.node import runsc
from support.node.installation_name import installation_name
from support.node.pod_parts import FolderVolumes, HostImages, QuietNetwork

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACES = "sandpool.node.runtimes.namespaces.runtime"
REAL = ["process", *(["namespaces"] if find_spec(NAMESPACES) else []), "gvisor"]
# Starting a kernel for each test takes its time: these are run always, the others with the deep searches.
OFTEN = {
    "test_a_signal_is_told", "test_one_that_ignores_the_polite_signal_is_ended_by_force",
    "test_a_command_has_three_streams_and_an_exit_code", "test_a_cancelled_command_is_ended_with_its_children",
    "test_control_c_reaches_the_program_in_the_foreground", "test_a_container_may_have_a_terminal",
    "test_a_port_inside_can_be_reached", "test_a_paused_pod_takes_no_commands", "test_only_logs_are_left",
}  # fmt: skip
PROBES: dict[str, Probe] = {}  # found out once
OPTIONS = PodsOptions(first_retry=0.05, first_pull_retry=0.05, longest_retry=0.2, kept=0.2)


def runtime(name: str, folder: Path) -> Runtime:
    if name == "process":
        return ProcessRuntime(folder, installation=installation_name(folder))
    if name == "gvisor":
        return GvisorRuntime(folder, installation=installation_name(folder), runsc=runsc.path())
    from sandpool.app.local_node import FORK_SERVER
    from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime

    return NamespacesRuntime(folder, installation=installation_name(folder), entry=FORK_SERVER)


def on_pods(name: str, folder: Path) -> Callable[[], Backend]:
    """As a new process would make it: the folders and what was given are the same."""
    images, network, clock = HostImages(), QuietNetwork(), SystemClock()
    return lambda: PodsBackend(
        runtime(name, folder / "runtime"),
        images,
        FolderVolumes(folder / "volumes"),
        network,
        clock,
        folder / "pods",
        OPTIONS,
    )


async def _opened(subject: Subject) -> AsyncIterator[Subject]:
    probe = PROBES.get(subject.name) or await subject.make().probe()
    PROBES[subject.name] = probe
    if not probe.available:
        pytest.skip(f"{probe.reason}: {probe.message}")
    await subject.open()
    yield subject
    await subject.backend.close()


@pytest.fixture(params=[pytest.param("hollow", marks=pytest.mark.looptime), *REAL])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "hollow":
        clock = LoopClock(START)
        made = Subject(lambda: FakeBackend(clock), "hollow", tmp_path)
    else:
        made = Subject(on_pods(request.param, tmp_path), request.param, tmp_path)
    async for one in _opened(made):
        yield one


@pytest.fixture(params=REAL)
async def real(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    """Only those that really run something."""
    async for one in _opened(Subject(on_pods(request.param, tmp_path), request.param, tmp_path)):
        yield one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        name = getattr(item, "originalname", "")
        deeper = callspec is not None and "gvisor" in callspec.params.values() and name not in OFTEN
        if deeper and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.long)
