"""The real kubectl: the one on PATH, else one built from the Go module proxy, else a reason to skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "kube" / "build.py"


@cache
def kubectl_path() -> str:
    """Where kubectl is. Skips the test, with the reason, where there is none and none can be built."""
    if found := shutil.which("kubectl"):
        return found
    if shutil.which("go") is None and "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("no kubectl on PATH, and no Go to build one")
    built = subprocess.run(
        [sys.executable, str(BUILD), "kubectl"], capture_output=True, text=True, timeout=1200, check=False
    )
    if built.returncode != 0:
        raise AssertionError(f"kubectl could not be built:\n{built.stderr}")
    return built.stdout.strip().splitlines()[-1]


@dataclass(slots=True)
class Done:
    """What kubectl said."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Kubectl:
    """kubectl with a kubeconfig and a home of its own, so that nothing of the machine's leaks in."""

    kubeconfig: Path
    home: Path
    namespace: str = "default"

    def __call__(self, *arguments: str, stdin: str | None = None, check: bool = True, timeout: float = 60) -> str:
        done = self.run(*arguments, stdin=stdin, timeout=timeout)
        if check and done.code != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)} ended with {done.code}:\n{done.out}{done.err}")
        return done.out

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60, editor: str = "") -> Done:
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=timeout, check=False,
            env=self.environment(editor),
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=self.environment(),
        )  # fmt: skip

    def command(self, *arguments: str) -> list[str]:
        return [kubectl_path(), f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]

    def environment(self, editor: str = "") -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        # It lives for a moment: collecting its garbage, most of it made before its first line, is a quarter of its work.
        return kept | {"HOME": str(self.home), "KUBE_EDITOR": editor, "GOGC": "off"}
