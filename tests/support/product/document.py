"""What a document tells its reader to type, as a script that a shell runs in the same order.

A block without a language is typed as it is. A Python block after "Put this into `NAME`:" becomes that file; others, one after the other
without a command between them, are one program. What makes the environment is left out: a test runs in one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.kube.kubectl import kubectl_path
from support.product.nobody import Nobody

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(
    r"(?:Put this into `(?P<file>[\w.-]+)`:\s+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
ENVIRONMENT = re.compile(r"^(make |export PATH=).*\n", re.MULTILINE)
PATIENCE = 100.0
"""Seconds for one document, on a machine that has much else to do."""
SHELL = ["bash", "-euxo", "pipefail", "-c"]
PRIVATE = {"SANDPOOL_PORT": "0", "SANDPOOL_ROUTER_PORT": "0", "PYTHONUNBUFFERED": "1"}
"""Other clusters of this machine may have the usual ports."""


def script(page: str) -> str:
    """The whole page."""
    parts: list[str] = []
    program: list[str] = []
    for block in BLOCK.finditer((ROOT / page).read_text()):
        kind, text, file = block["kind"], block["text"], block["file"]
        if kind == "python" and file is None:
            program.append(text)
        elif kind == "python":
            parts.append(_written(file, text))
        elif not kind:
            parts += [*_run(program), ENVIRONMENT.sub("", text)]
            program = []
    return "\n".join([*parts, *_run(program)])


def _written(file: str, text: str) -> str:
    return f"cat > {file} <<'END-OF-PYTHON'\n{text}END-OF-PYTHON\n"


def _run(program: list[str]) -> list[str]:
    """Also tells how it ended, because a shell that was told to stop at a failure says nothing."""
    return [_written("program.py", "\n".join(program)) + "python program.py\n"] if program else []


def promised(page: str) -> list[str]:
    """What comments behind the `print`s of programs say that they print."""
    blocks = [block for block in BLOCK.finditer((ROOT / page).read_text()) if block["kind"] == "python"]
    lines = [line for block in blocks for line in block["text"].splitlines() if line.strip().startswith("print(")]
    return [said for line in lines if (said := line.partition(")  # ")[2])]


def keeps(said: str, promises: list[str]) -> bool:
    """Whether these lines were all said, in this order, whatever else was."""
    lines = iter(line.strip() for line in said.splitlines())
    return all(promise in lines for promise in promises)


def typed(text: str, home: Path, *, cwd: Path = ROOT, data: Path | None = None) -> str:
    """What it said on stdout, in a shell that stops at the first failure. Nothing of the machine's own clusters is seen."""
    places = [Path(sys.executable).parent, *([Path(kubectl_path()).parent] if "kubectl " in text else [])]
    environment = {
        "PATH": ":".join([*map(str, places), os.environ["PATH"]]),
        "HOME": str(home),
        "SANDPOOL_DATA_DIR": str(data or home / "data"),
        **PRIVATE,
    }
    done = subprocess.run(
        [*SHELL, text], env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def typed_by(user: Nobody, text: str, cwd: Path) -> str:
    """The same, as typed by an ordinary user."""
    if "kubectl " in text and shutil.which("kubectl") is None:
        user.copy_command(Path(kubectl_path()))  # built, in a folder that may be root's alone
    done = user.command([*SHELL, text], cwd=cwd, more=PRIVATE, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
