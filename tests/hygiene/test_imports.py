"""What an import costs: nobody pays for what they do not use."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import sandpool", {"msgspec", "aiohttp", "cyclopts", "rich", "yaml", "asyncio"}),
        (
            "from sandpool import Sandbox",
            {"aiohttp", "cyclopts", "rich", "mcp", "yaml", "asyncio", "cryptography", "httptools"},
        ),
        (
            "from sandpool import AsyncSandbox",
            {"aiohttp", "cyclopts", "rich", "mcp", "yaml", "cryptography"},
        ),
        ("import sandpool.model.kinds", {"aiohttp", "cyclopts", "rich", "yaml", "cryptography", "asyncio"}),
        ("import sandpool.kube.api", {"aiohttp", "cryptography"}),
        ("import sandpool.cli.main", {"aiohttp", "uvloop", "cryptography", "sqlite3", "prometheus_client"}),
        ("import sandpool.loop.controller", {"cryptography", "sqlite3", "aiohttp"}),
    ],
)
def test_imports_stay_lazy(statement: str, absent: set[str]) -> None:
    assert modules_after(statement) & absent == set()
