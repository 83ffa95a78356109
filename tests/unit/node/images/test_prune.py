"""Which images go, and that what is needed stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.images.prune import ImageView, PruneRules, plan_prune

NEVER = PruneRules(unused_for=1e9, max_bytes=10**12)
NOW = 1000.0


def image(
    name: str, used_at: float, *layers: str, held: bool = False, named: bool = True, imported: bool = False
) -> ImageView:
    return ImageView(name, layers, used_at, held, named, imported)


def test_age() -> None:
    views = [image("old", 10, "a"), image("new", 990, "b"), image("held", 5, "c", held=True)]
    assert plan_prune(views, {}, PruneRules(100, 10**12), NOW) == ("old",)


def test_the_longest_unused_goes_first_and_no_more_than_needed() -> None:
    views = [image(name, at, name) for name, at in (("c", 30), ("a", 10), ("b", 20))]
    assert plan_prune(views, {"a": 5, "b": 5, "c": 5}, PruneRules(1e9, 9), NOW) == ("a", "b")


def test_shared_layers_are_freed_with_the_last_who_needs_them() -> None:
    views = [image("a", 1, "base", "x"), image("b", 2, "base", "y"), image("c", 3, "z")]
    sizes = {"base": 100, "x": 1, "y": 1, "z": 50}
    assert plan_prune(views, sizes, PruneRules(1e9, 151), NOW) == ("a",)
    assert plan_prune(views, sizes, PruneRules(1e9, 150), NOW) == ("a", "b")


def test_imported_images_stay_unless_asked_for() -> None:
    views = [image("mine", 1, "a", imported=True)]
    assert plan_prune(views, {"a": 5}, PruneRules(0, 0), NOW) == ()
    assert plan_prune(views, {"a": 5}, PruneRules(0, 0, imported=True), NOW) == ("mine",)


def test_nameless_images_go_at_once_unless_held() -> None:
    views = [image("a", 999, "x", named=False), image("b", 999, "y", named=False, held=True)]
    assert plan_prune(views, {}, NEVER, NOW) == ("a",)


VIEWS = st.lists(
    st.builds(
        ImageView,
        st.uuids().map(str),
        st.lists(st.sampled_from("abcdef"), max_size=4).map(tuple),
        st.floats(0, NOW),
        held=st.booleans(),
        named=st.booleans(),
        imported=st.booleans(),
    ),
    max_size=8,
)


@given(VIEWS, st.integers(0, 70), st.floats(0, NOW))
def test_what_must_stay_stays_and_what_must_go_goes(views: list[ImageView], most: int, unused_for: float) -> None:
    sizes = {name: number * 3 + 1 for number, name in enumerate("abcdef")}
    gone = set(plan_prune(views, sizes, PruneRules(unused_for, most), NOW))
    kept = [view for view in views if view.id not in gone]
    assert not [view for view in views if view.id in gone and (view.held or view.imported)]
    removable = [view for view in kept if not view.held and not view.imported]
    assert all(view.named and NOW - view.used_at < unused_for for view in removable)
    used = {layer for view in views for layer in view.layers}
    left = sum(size for name, size in sizes.items() if name not in used)
    left += sum(sizes[layer] for layer in {layer for view in kept for layer in view.layers})
    assert left <= most or not removable
