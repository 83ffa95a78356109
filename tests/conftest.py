"""What holds for every test: nothing leaks, and what was executed is counted by marker."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong. The ordinary suite and CI search the same ground each time; the long suite by hand finds new ground.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# Most tests of the command are about objects; those about real pods or the first pool name what they want, and the README is tried as it is.
os.environ["SANDPOOL_BACKEND"] = "hollow"
os.environ["SANDPOOL_POOL"] = "none"
os.environ["SANDPOOL_DISK_RESERVE"] = "16Mi"  # of each of a thousand data directories

# A shell that starts tests in the background has them, and all that they start, ignore Ctrl-C; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

COUNTED = ("kubectl", "kube", "node", "root", "ordinary_user", "long")


@pytest.fixture(autouse=True)
def log_of_one_test() -> Iterator[None]:
    """A test that sets up the program's log does so for itself alone."""
    log = logging.getLogger("sandpool")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers[:], log.level, log.propagate = before


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """A test that leaves a thread, a child process or an open file behind has failed, whatever else it proved."""
    threads, children, files = set(threading.enumerate()), _children(), _files()
    yield
    leaked = [thread for thread in threading.enumerate() if thread not in threads and not _pooled(thread)]
    for thread in leaked:
        thread.join(10)  # one that has done its work may still be about to end
    leaked = [thread for thread in leaked if thread.is_alive()]
    assert not leaked, f"threads left behind: {[thread.name for thread in leaked]}"
    left = _children() - children
    assert not left, f"processes left behind: {left}"
    if len(_files()) > len(files):
        gc.collect()  # what only waits for the collector is not a leak of ours
    more = Counter(_files().values()) - Counter(files.values())
    assert not more, f"open files left behind: {dict(more)}"


def _pooled(thread: threading.Thread) -> bool:
    """Executors of the standard library keep their idle threads; asyncio ends its own with the loop."""
    return thread.name.startswith(("ThreadPoolExecutor", "asyncio_"))


def _children() -> set[int]:
    """Who is a child of this process, asked twice for each test: of the kernel's own lists where it keeps them, for a hundredth of a walk over all."""
    try:
        found = [pid for task in os.listdir("/proc/self/task") for pid in _children_of(task)]
    except OSError:
        found = [child.pid for child in psutil.Process().children()]
    return {pid for pid in found if not _zombie(pid)}


def _children_of(task: str) -> list[int]:
    with open(f"/proc/self/task/{task}/children", encoding="ascii") as listed:
        return [int(pid) for pid in listed.read().split()]


def _zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _files() -> dict[int, str]:
    """Open descriptors by what they are; pipes and sockets are named by kind, because their numbers differ."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        found[int(entry)] = (
            target.partition(":")[0] if target.startswith(("pipe:", "socket:", "anon_inode:")) else target
        )
    return found


class Executed:
    """Counts by marker what really ran, so that CI can tell a suite that passed from one that was skipped whole. A suite may be several runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter(json.loads(path.read_text()) if path.exists() else {})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.outcome != "skipped":
            self.counts["all"] += 1
            self.counts.update(marker for marker in COUNTED if marker in report.keywords)

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.counts, sort_keys=True) + "\n")


class FolderTimes:
    """Prints how long the tests of each folder took, added up over all workers."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        parts = report.nodeid.partition("::")[0].split("/")[:-1]
        folder = "/".join(parts[: 3 if "integration" in parts else 2])
        self.seconds[folder] += report.duration  # type: ignore[assignment]  # a Counter of floats
        self.tests[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(self.tests.values()) < 1000:
            return  # somebody runs a few, and looks at them
        terminalreporter.section("time by folder")
        for folder, seconds in self.seconds.most_common():
            terminalreporter.write_line(f"{seconds:8.1f} s {self.tests[folder]:6} tests  {folder}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What the collection makes, fifteen thousand tests and all that they import, stays: a look for garbage need not walk over it each time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    asyncio.set_event_loop(None)  # else pytest-asyncio makes one around the first test, which would look like a leak
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(FolderTimes())
    if path := os.environ.get("SANDPOOL_EXECUTED"):
        config.pluginmanager.register(Executed(Path(path)))
