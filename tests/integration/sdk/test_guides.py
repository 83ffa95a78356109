"""The how-tos about files, processes and terminals, run as they are printed: what they print is what they say."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

from support.network.boxd_daemon import Daemon
from support.network.sdk_box import SyncBox

GUIDES = Path(__file__).parents[3] / "docs/how-to"
CLAIM = 'box = Sandbox.claim("python", ttl=600)'


def snippets(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (GUIDES / page).read_text(), re.M | re.S)


def promised(snippet: str) -> list[str]:
    """What comments behind `print` say that it prints."""
    return [line.partition(")  # ")[2] for line in snippet.splitlines() if line.strip().startswith("print(")]


@pytest.mark.parametrize("page", ["files-and-processes.md", "terminals.md"])
def test_a_guide(page: str, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    box = SyncBox(daemon.port)
    names: dict[str, object] = {"box": box}
    first, *rest = snippets(page)
    assert CLAIM in first
    assert len(rest) >= 2
    for snippet in rest:
        ast.parse(snippet)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(snippet, page, "exec"), names)
        assert said.getvalue().splitlines() == promised(snippet), snippet
    for value in names.values():
        if hasattr(value, "close") and value is not box:
            value.close()
    box.way.http.close()
