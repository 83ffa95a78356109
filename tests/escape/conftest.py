"""Runs every attempt and scenario once for each backend and kind of user, all at the same time, and keeps what became of them.

Each run is a process of its own (support/escape/run.py); the tests of this folder only look up their own line.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kube.build import find
from support.escape.backends import BACKENDS
from support.escape.census import marked
from support.product.ordinary_user import NOBODY, interpreter, readable_copy

PATIENCE, LONG_PATIENCE = 300, 900
# What the stores of images need beyond what the runtimes do.
MORE = (
    "aiohttp",
    "yarl",
    "multidict",
    "frozenlist",
    "propcache",
    "aiosignal",
    "attr",
    "attrs",
    "aiohappyeyeballs",
    "idna",
)
ROOT = os.geteuid() == 0
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """One backend, used by one kind of user."""

    backend: str
    user: str

    @property
    def id(self) -> str:
        return f"{self.backend}-{self.user}"

    @property
    def isolates(self) -> bool:
        return BACKENDS[self.backend].isolates

    @property
    def slow(self) -> bool:
        """Starting a kernel for each sandbox takes minutes for all of them."""
        return BACKENDS[self.backend].own_kernel

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        return [
            pytest.mark.root if self.user == "root" else pytest.mark.ordinary_user,
            pytest.mark.timeout(LONG_PATIENCE + 60 if self.slow else PATIENCE + 60),
            *([pytest.mark.long] if self.slow else []),
        ]


def runs() -> list[Run]:
    """Without isolation once is enough: it is the proof."""
    me = "root" if ROOT else "user"
    isolated = [name for name, kind in BACKENDS.items() if kind.isolates and (name != "gvisor" or RUNSC)]
    return [
        *(Run(name, me) for name in isolated),
        *(Run(name, "user") for name in isolated if ROOT),
        *(Run(name, me) for name, kind in BACKENDS.items() if not kind.isolates),
    ]


RUNSC = find("runsc")
RUNS = runs()


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """The tests of this folder start nothing; the runs count for themselves what they leave."""


class Started:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.token = f"host-{secrets.token_hex(16)}"
        self.home = Path("/tmp") / f"sandpool-escape-{os.getpid()}-{run.id}"
        self.home.mkdir(mode=0o755)
        work = self.home / "work"
        work.mkdir(mode=0o755)
        other = run.user == "user" and ROOT
        who: dict[str, Any] = {}
        path = str(Path(__file__).parents[1])
        if other:
            os.chown(work, NOBODY, NOBODY)
            who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            path = str(readable_copy(self.home, MORE))
        program = interpreter() if other else sys.executable
        env = {"PYTHONPATH": path, "PATH": os.environ["PATH"], "HOME": str(work), "SANDPOOL_ESCAPE_SECRET": self.token}
        if run.backend == "gvisor" and RUNSC:
            env["SANDPOOL_RUNSC"] = str(shutil.copy(RUNSC, self.home / "runsc"))
        self.process = subprocess.Popen(
            [program, "-m", "support.escape.run", run.backend, str(work), self.token], cwd=work, env=env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **who,
        )  # fmt: skip

    def finished(self) -> Lines:
        """What it said, and what it left behind."""
        try:
            out, err = self.process.communicate(timeout=LONG_PATIENCE if self.run.slow else PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            err += "\nit took too long"
        lines: Lines = [json.loads(line) for line in out.splitlines()]
        left = [*marked(self.token), *_groups(self.process.pid)]
        shutil.rmtree(self.home, ignore_errors=True)
        if self.home.exists():
            left.append(self.home)
        lines.append({"end": self.process.returncode, "said": err[-4000:], "left": [str(each) for each in left]})
        return lines


def _groups(pid: int) -> list[str]:
    found = (
        (top, name) for top, names, _ in os.walk("/sys/fs/cgroup") for name in names
    )  # others come and go meanwhile
    return [os.path.join(top, name) for top, name in found if f"esc{pid}-" in name]


def outcomes(shared: Path, *, slow: bool) -> dict[str, Lines]:
    """By run. Processes of one test session share them: whoever comes first has them made."""
    kept = shared / f"escape-{slow}.json"
    with open(shared / f"escape-{slow}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            started = [Started(run) for run in RUNS if run.slow == slow]
            kept.write_text(json.dumps({each.run.id: each.finished() for each in started}))
    found: dict[str, Lines] = json.loads(kept.read_text())
    return found


@pytest.fixture(scope="session")
def known() -> dict[bool, dict[str, Lines]]:
    """What this process has read already."""
    return {}


@pytest.fixture
def lines(run: Run, known: dict[bool, dict[str, Lines]], tmp_path_factory: pytest.TempPathFactory) -> Lines:
    if run.slow not in known:
        base = tmp_path_factory.getbasetemp()
        known[run.slow] = outcomes(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base, slow=run.slow)
    found = known[run.slow][run.id]
    skip = next((line["skip"] for line in found if "skip" in line), None)
    if skip:
        pytest.skip(skip)
    return found
