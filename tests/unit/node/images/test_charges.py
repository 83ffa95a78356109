"""Whose the images of this machine are, and whose go when another tenant needs room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.shares import OPERATOR
from sandpool.node.images.prune import Charges, ImageView, PruneRules, RoomRequest, plan_prune, plan_room, room_of


def image(name: str, tenants: str, used_at: float = 0, *, held: bool = False, imported: bool = False) -> ImageView:
    """Of one layer that is named like it."""
    return ImageView(name, (name,), used_at, held, imported=imported, tenants=tuple(tenants.split()))


def test_a_layer_is_split_among_all_who_use_it() -> None:
    views = [
        ImageView("one", ("base", "x"), 0, tenants=("a",)),
        ImageView("two", ("base", "y"), 0, tenants=("a", "b")),
        ImageView("three", ("base",), 0, tenants=("c",)),
    ]
    charges = Charges(views, {"base": 300, "x": 10, "y": 20})
    assert charges.held == {"a": 120, "b": 110, "c": 100}
    assert charges.remove(views[1]) == 20
    assert charges.held == {"a": 160, "c": 150}
    assert charges.remove(views[0]) == 10
    assert charges.held == {"c": 300}
    assert (charges.remove(views[2]), charges.total, charges.held) == (300, 0, {})


def test_what_the_operator_has_is_nobody_elses() -> None:
    views = [ImageView("o", ("base",), 0, tenants=(OPERATOR,)), ImageView("a", ("base", "x"), 0, tenants=("a",))]
    assert Charges(views, {"base": 100, "x": 1}).held == {OPERATOR: 100, "a": 1}


def test_what_is_held_otherwise_is_not_freed() -> None:
    view = image("x", "a")
    assert Charges([view], {"x": 100}, pinned=["x"]).remove(view) == 0


GREEDY = [image(f"g{number}", "greedy", number) for number in range(8)]
SIZES = {**{f"g{number}": 10 for number in range(8)}, "m": 10, "o": 10, "both": 10}


def test_unused_images_of_who_has_the_most_go_the_longest_unused_first() -> None:
    assert plan_room(GREEDY, SIZES, (), RoomRequest("modest", 20, free=10))[0] == ("g0", "g1")
    assert plan_room(GREEDY, SIZES, (), RoomRequest("modest", 8, free=10)) == ((), 8)


def test_nobody_gets_more_that_way_than_it_leaves_to_others() -> None:
    gone, room = plan_room(GREEDY, SIZES, (), RoomRequest("modest", 1000, free=10))
    assert len(gone) == 4
    assert room == 44
    assert len(plan_room(GREEDY, SIZES, (), RoomRequest("modest", 1000, free=10, pulling={"modest": 40}))[0]) == 2


def test_what_somebody_needs_stays() -> None:
    held = [image(f"g{number}", "greedy", number, held=True) for number in range(8)]
    others = [
        image("m", "modest"),
        ImageView("operator's", ("o",), 0, tenants=(OPERATOR,)),
        image("both", "greedy small"),
        image("imported", "greedy", imported=True),
    ]
    gone, room = plan_room([*held, *others], SIZES, (), RoomRequest("new", 30, free=9))
    assert gone == ("m",), "it has more than the new one would have"
    assert room == 8 * 19 // 9


def test_a_tenant_gives_its_own_before_it_is_refused() -> None:
    gone, room = plan_room(GREEDY, SIZES, (), RoomRequest("greedy", 5, free=8))
    assert gone == ("g0",)
    assert room >= 5


def test_one_tenant_alone_may_have_nearly_everything_and_leaves_room_for_another() -> None:
    assert room_of("a", {}, {}, 900) == 800
    assert room_of("a", {"a": 800}, {}, 100) == 0
    assert room_of("b", {"a": 500}, {"a": 300}, 100) == 88
    assert room_of(OPERATOR, {"a": 800}, {}, 100) == 100
    assert room_of("a", {}, {}, -5) == 0


def test_of_all_images_those_of_who_has_the_most_go_first_not_the_oldest() -> None:
    views = [image("m", "modest", 1), *(image(f"g{number}", "greedy", 100 + number) for number in range(3))]
    sizes = {"m": 10, "g0": 10, "g1": 10, "g2": 10}
    assert plan_prune(views, sizes, PruneRules(1e9, 20), 200) == ("g0", "g1")


TENANTS = st.sampled_from(["a", "b", "c", OPERATOR])
VIEWS = st.lists(
    st.builds(
        ImageView,
        st.uuids().map(str),
        st.lists(st.sampled_from("uvwxyz"), max_size=4).map(tuple),
        st.floats(0, 100),
        held=st.booleans(),
        imported=st.booleans(),
        tenants=st.lists(TENANTS, max_size=3, unique=True).map(tuple),
    ),
    max_size=8,
)


@given(VIEWS, st.sampled_from("abc"), st.integers(0, 200), st.integers(-10, 100))
def test_room_is_made_only_from_who_has_more(views: list[ImageView], tenant: str, wanted: int, free: int) -> None:
    sizes = {name: number * 7 + 1 for number, name in enumerate("uvwxyz")}
    before = Charges(views, sizes).held
    gone, room = plan_room(views, sizes, (), RoomRequest(tenant, wanted, free))
    taken = [view for view in views if view.id in gone]
    assert not [view for view in taken if view.held or view.imported or OPERATOR in view.tenants]
    if room_of(tenant, before, {}, free) >= wanted:
        assert not taken
    left, freed = Charges(views, sizes), 0
    for view in sorted(taken, key=lambda view: gone.index(view.id)):
        mine = left.held.get(tenant, 0) + room_of(tenant, left.held, {}, free + freed)
        assert view.tenants == (tenant,) or all(left.held.get(other, 0) > mine for other in view.tenants)
        freed += left.remove(view)
    assert room == room_of(tenant, left.held, {}, free + freed)
