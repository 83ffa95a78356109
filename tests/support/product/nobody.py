"""An ordinary user with an installation of their own, for tests that root runs: a home, the package, what it needs, and the commands."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import sandpool as package
from support.product.ordinary_user import NOBODY, interpreter

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Nobody:
    """A user who owns nothing but a home."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(self.home / "site"), "HOME": str(self.home), "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "SANDPOOL_DATA_DIR": str(self.data), "TMPDIR": str(self.home),
        }  # fmt: skip

    def sandpool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "sandpool", *arguments)

    def python(self, *arguments: str) -> str:
        return self.run(*arguments).stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.command(["python", *arguments], cwd=self.home)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done

    def command(
        self, words: list[str], *, cwd: Path, more: Mapping[str, str] | None = None, timeout: float = 90
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shutil.which(words[0], path=self.environment["PATH"]) or words[0], *words[1:]], user=NOBODY, group=NOBODY,
            extra_groups=[], cwd=cwd, env={**self.environment, **(more or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def folder(self, name: str) -> Path:
        """A new one in the home, of this user."""
        made = self.home / name
        made.mkdir()
        os.chown(made, NOBODY, NOBODY)
        return made

    def copy(self, source: Path, target: Path) -> None:
        """For this user to read."""
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
        _readable(target)

    def copy_command(self, program: Path) -> None:
        copied = self.home / "bin" / program.name
        if not copied.exists():
            shutil.copy(program, copied)
            copied.chmod(0o755)


@contextlib.contextmanager
def nobody() -> Iterator[Nobody]:
    """In a folder of its own: pytest's are for root alone."""
    home = Path("/tmp") / f"sandpool-nobody-{os.getpid()}"
    home.mkdir(mode=0o700)
    try:
        user = Nobody(home)
        _install(home)
        os.chown(home, NOBODY, NOBODY)
        yield user
    finally:
        shutil.rmtree(home)


def _install(home: Path) -> None:
    """What `make install` gives a user, where that user can read it whoever owns the checkout."""
    python, site, commands = interpreter(), home / "site", home / "bin"
    for folder in (site, commands):
        folder.mkdir()
    for source in (Path(package.__file__).parent, *_needed()):
        if source.is_dir():
            shutil.copytree(source, site / source.name)  # with what is compiled: times are copied, too
        else:
            shutil.copy(source, site / source.name)
    for name in ("python", "python3"):
        (commands / name).symlink_to(python)
    (commands / "sandpool").write_text('#!/bin/sh\nexec python -m sandpool "$@"\n')
    _readable(site)
    for path in (commands, commands / "sandpool"):
        path.chmod(0o755)


def _needed() -> set[Path]:
    """Top folders and modules of the pinned requirements of the runtime, as far as they are for this machine."""
    found: set[Path] = set()
    for name in re.findall(r"^([\w.-]+)==", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE):
        with contextlib.suppress(ModuleNotFoundError):  # for another version of Python
            installed = distribution(name)
            tops = {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}
            found |= {path for top in tops if (path := Path(str(installed.locate_file(top)))).exists()}
    return found


def _readable(path: Path) -> None:
    for one in (path, *path.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
