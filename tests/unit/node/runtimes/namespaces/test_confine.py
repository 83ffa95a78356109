"""Limits of a process before anything untrusted runs in it."""

from __future__ import annotations

import resource

import pytest

from sandpool.node.runtimes.namespaces.forked import confine


@pytest.mark.parametrize(("may_raise", "core"), [(True, 1), (False, 0)])
def test_the_limit_of_core_files_is_raised_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, may_raise: bool, core: int
) -> None:
    """Not every root may: so the answers of the kernel are played."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 1000, resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY}

    def set_limit(number: int, values: tuple[int, int]) -> None:
        if limits[number] != resource.RLIM_INFINITY and values[1] > limits[number] and not may_raise:
            raise ValueError("not allowed to raise maximum limit")
        limits[number] = values[1]

    monkeypatch.setattr(resource, "getrlimit", lambda number: (0, limits[number]))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    confine.limit({"CORE": 1, "NOFILE": 5000, "MEMLOCK": 7})
    assert limits == {resource.RLIMIT_CORE: core, resource.RLIMIT_NOFILE: 1000, resource.RLIMIT_MEMLOCK: 7}
