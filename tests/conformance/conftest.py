"""Tests of a real server run only when asked for; an ordinary run does not even mention them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kube.fixture import hold_server, leave_out


@pytest.fixture(scope="session", autouse=True)
def real_server(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from hold_server(request.session)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
