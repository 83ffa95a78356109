"""Scenarios that several suites run are tests too: their failures show the values."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "support.agent_sandbox_sdk",
    "support.upstream_claims",
    "support.upstream_parts",
    "support.upstream_pools",
    "support.upstream_sandboxes",
)
