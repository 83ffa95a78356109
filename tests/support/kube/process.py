"""Processes beside a real API server: `sandpool controller` as a user starts it, and the hollow node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]
STOP_TIMEOUT = 45.0
START_TIMEOUT = 60.0


class Process:
    """One child, with what it says in a file. Ended by pid, whatever happens."""

    def __init__(
        self, log: Path, *command: str, env: dict[str, str] | None = None, program: str = sys.executable
    ) -> None:
        self.log = log
        with log.open("ab") as file:
            self._child = subprocess.Popen(
                [program, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": str(TESTS), **(env or {})},
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int | None:
        return self._child.poll()

    def kill(self) -> None:
        """As a machine that loses power does."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        return self.wait(STOP_TIMEOUT)

    def wait(self, seconds: float) -> int:
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end within {seconds} s:\n{self.tail()}") from None

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Controller(Process):
    """`sandpool controller` with ports of its own choosing, which are read from its log."""

    def __init__(self, log: Path, kubeconfig: Path, *flags: str) -> None:
        bind = [f"--{name}-bind-address=127.0.0.1:0" for name in ("metrics", "health-probe", "debug", "stories")]
        super().__init__(log, "-m", "sandpool", "controller", f"--kubeconfig={kubeconfig}", *bind, *flags)

    def lines(self, message: str) -> list[dict[str, Any]]:
        """Its log lines of that message."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if entry.get("msg") == message:
                    found.append(entry)
        return found

    def page(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while nothing listens."""
        for line in self.lines("listening"):
            if path.partition("?")[0] in line["pages"].split(","):
                try:
                    with urllib.request.urlopen(f"http://{line['address']}{path}", timeout=30) as answer:
                        return answer.status, answer.read().decode()
                except urllib.error.HTTPError as error:
                    return error.code, error.read().decode()
                except OSError as error:
                    return 0, str(error)
        return 0, "it does not listen yet"

    def leads(self) -> bool:
        code, text = self.page("/metrics")
        return code == 200 and any(
            line.startswith("sandpool_leader{") and line.endswith(" 1.0") for line in text.splitlines()
        )

    def wait_ready(self, *, leading: bool = False) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            assert self.code is None, f"it ended with {self.code}:\n{self.tail()}"
            if self.page("/readyz")[0] == 200 and (not leading or self.leads()):
                return
            time.sleep(0.1)
        raise AssertionError(f"not ready: {self.page('/readyz')}\n{self.tail()}")


@contextlib.contextmanager
def hollow_node(folder: Path, kubeconfig: Path) -> Iterator[Process]:
    node = Process(folder / "node.log", "-m", "support.kube.node", str(kubeconfig))
    try:
        yield node
    finally:
        node.kill()


@contextlib.contextmanager
def controller(folder: Path, kubeconfig: Path, *flags: str, name: str = "controller") -> Iterator[Controller]:
    made = Controller(folder / f"{name}.log", kubeconfig, *flags)
    try:
        yield made
    finally:
        if made.code is None:
            made.stop()
