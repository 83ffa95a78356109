"""Keys, prefixes, buckets and ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.store.log import Loaded
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.state import State, bucket_of, check_key, check_prefix
from sandpool.model.metadata import Revision

names = st.text("ab-.é", min_size=1, max_size=3)
keys = st.one_of(
    st.tuples(names, names, names).map("/".join),
    st.tuples(names, names, names, names).map("/".join),
)
prefixes = st.one_of(
    st.just(""),
    st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "/"),
)


def a_state(present: set[str]) -> State:
    return State(Loaded(live={key: Record(key, Revision(1), Revision(1), b"") for key in present}))


@pytest.mark.parametrize(
    ("path", "bucket"),
    [
        ("agents.x-k8s.io/sandboxes/default/one", "agents.x-k8s.io/sandboxes/"),
        ("agents.x-k8s.io/sandboxes/default/", "agents.x-k8s.io/sandboxes/"),
        ("core/nodes/one", "core/nodes/"),
        ("core/nodes/", "core/nodes/"),
        ("core/", ""),
        ("", ""),
    ],
)
def test_bucket(path: str, bucket: str) -> None:
    assert bucket_of(path) == bucket


@pytest.mark.parametrize("key", ["", "one", "core/nodes", "core/nodes/", "core/pods/default/"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="group/resource/name"):
        check_key(key)


def test_a_prefix_ends_with_a_slash() -> None:
    check_prefix("")
    check_prefix("core/nodes/")
    with pytest.raises(ValueError, match="slash"):
        check_prefix("core/nodes")


@given(st.sets(keys), prefixes, st.one_of(st.just(""), keys), st.integers(0, 4))
def test_ranges_are_those_of_a_sorted_list(present: set[str], prefix: str, after: str, limit: int) -> None:
    state = a_state(present)
    expected = sorted(key for key in present if key.startswith(prefix) and key > after)
    assert list(state.keys(prefix, after)) == expected
    assert state.count(prefix, after) == len(expected)
    assert [r.key for r in state.scan(prefix, after, limit)] == (expected[:limit] if limit else expected)


def test_tombstones_are_forgotten_up_to_the_floor() -> None:
    loaded = Loaded()
    loaded.tombstones.update({"a/b/one": Revision(3), "a/b/two": Revision(5)})
    state = State(loaded)
    state.forget_tombstones(Revision(4))
    assert (state.prior("a/b/one"), state.prior("a/b/two")) == (0, 5)
    state.forget_tombstones(Revision(5))
    assert state.prior("a/b/two") == 0
