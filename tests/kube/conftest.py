"""Tests of a real server run only when asked for; an ordinary run does not even mention them."""

from __future__ import annotations

import pytest

from support.kube.fixture import leave_out


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
