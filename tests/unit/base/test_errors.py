"""Errors that are passed on from part to part: what they say is said once."""

from __future__ import annotations

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.backend import BackendError
from sandpool.node.kubelet.references import Unresolved


@pytest.mark.parametrize("kind", [NodeError, BackendError, Unresolved])
def test_a_message_is_not_nested_in_itself(kind: type[NodeError]) -> None:
    """Whoever passes one on as text has its reason in front of it already."""
    error = first = kind("DiskFull", "a volume could not be written; free space")
    for _ in range(3):
        error = kind(error.reason, str(error))
    assert (error.reason, error.message, str(error)) == (first.reason, first.message, str(first))
    assert str(error) == "DiskFull: a volume could not be written; free space"


def test_another_reason_is_kept_in_the_message() -> None:
    inner = NodeError("DiskFull", "free space")
    assert str(NodeError("CreatePodSandboxError", str(inner))) == "CreatePodSandboxError: DiskFull: free space"
