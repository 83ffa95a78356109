"""Commands of the documentation, run as a reader would run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.kube.kubectl import kubectl_path
from support.kube.server import KubeServer

REPLACE = Path(__file__).parents[3] / "docs/how-to/replace-another-controller.md"


def command(page: Path, beginning: str) -> str:
    """The one that begins so, to its end: the next empty line, or that of its block."""
    lines = page.read_text().splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.strip().startswith(beginning)]
    end = next(number for number in range(start, len(lines)) if lines[number].strip() in ("", "```"))
    return "\n".join(line.strip() for line in lines[start:end])


def shell(text: str, server: KubeServer, home: Path, **variables: str) -> str:
    places = f"{Path(kubectl_path()).parent}:{os.environ['PATH']}"
    env = {"PATH": places, "KUBECONFIG": str(server.kubeconfig), "HOME": str(home), **variables}
    done = subprocess.run(["sh", "-ec", text], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    assert done.stdout, text
    return done.stdout
