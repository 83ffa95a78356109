"""Every test of this folder runs on each implementation of kube.Api, in a namespace of its own."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api
from sandpool.model.kinds import NAMESPACES
from support.api.implementations import NAMES, Implementation, opened


def _parameters() -> list[object]:
    return [pytest.param(name, marks=[pytest.mark.kube] if name == "kube" else []) for name in NAMES]


@pytest.fixture(params=_parameters())
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Implementation]:
    async with opened(request.param, tmp_path) as implementation:
        yield implementation


@pytest.fixture
def api(cluster: Implementation) -> Api:
    return cluster.api


@pytest.fixture
async def ns(api: Api) -> AsyncIterator[str]:
    """A fresh namespace, deleted afterwards without waiting for its end."""
    name = f"api-{secrets.token_hex(4)}"
    await api.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    with contextlib.suppress(SandpoolError):  # a test may have deleted it
        await api.delete(NAMESPACES, name)
