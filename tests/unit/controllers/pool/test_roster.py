"""The roster against a plain list of members: after any history both answer the same."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sandpool.controllers.pool.roster import Member, Rank
from unit.controllers.pool.views import NOW, a_member, a_roster, ago, later, ready

steps = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(["put", "put", "put", "drop"]),
        st.fixed_dictionaries(
            {
                "age": st.sampled_from([10.0, 10.0, 200.0, 400.0]),
                "ready": st.booleans(),
                "stale": st.booleans(),
                "placed": st.booleans(),
                "leaving": st.booleans(),
                "marked": st.booleans(),
                "failing": st.booleans(),
            }
        ),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(steps)
def test_it_answers_like_a_list(history: list[tuple[int, str, dict[str, bool]]]) -> None:
    roster, plain = a_roster(), dict[str, Member]()
    for number, verb, facts in history:
        member = a_member(number, **facts)
        if verb == "put":
            assert roster.put(member) == plain.get(member.uid)
            plain[member.uid] = member
        else:
            assert roster.drop(member.uid) == plain.pop(member.uid, None)
        stay = [one for one in plain.values() if not one.leaving]
        expected = sorted(stay, key=lambda one: (one.created, one.uid), reverse=True)
        expected.sort(key=lambda one: one.rank)
        assert list(roster.of(Rank)) == expected
        assert (len(roster), roster.staying, roster.leaving) == (len(plain), len(stay), len(plain) - len(stay))
        assert (roster.ready, roster.stale, roster.fresh) == (
            sum(one.ready for one in stay),
            sum(one.stale for one in stay),
            sum(not one.stale for one in stay),
        )
        assert sorted(one.uid for one in roster.unmarked()) == sorted(one.uid for one in stay if not one.marked)
        waiting = [one for one in stay if not one.ready]
        late = sorted(one.uid for one in waiting if one.placed and one.since <= ago(300))
        assert sorted(one.uid for one in roster.overdue(NOW)) == late
        assert sorted(one.uid for one in roster.failing()) == sorted(one.uid for one in stay if one.failing)
        due = [one.since + timedelta(seconds=300) for one in waiting]
        assert roster.next_due(NOW) == min((one for one in due if one > NOW), default=None)


def test_patience_doubles_with_each_generation_and_ends_with_success() -> None:
    first, second = a_member(1, age=400), a_member(2, age=400)
    roster = a_roster([first, second])
    for member in (first, second):
        roster.give_up(member)
        roster.drop(member.uid)
    assert roster.level == 1, "both are of one generation"
    third = a_member(3, age=0)
    roster.put(third)
    assert roster.next_due(NOW) == later(600)
    roster.give_up(third)
    assert roster.level == 2
    roster.put(replace(third, ready=True))
    assert roster.level == 0


def test_patience_has_an_end() -> None:
    roster = a_roster()
    for number in range(20):
        member = a_member(number, age=0)
        roster.put(member)
        assert roster.next_due(NOW) == later(min(300 * 2**number, 3600))
        roster.give_up(member)
        roster.drop(member.uid)


def test_without_a_node_there_is_no_growing_patience() -> None:
    roster = a_roster([a_member(1, age=301, placed=False)])
    assert list(roster.overdue(NOW)) == []
    found = roster.unplaced(NOW)
    assert found is not None
    assert found.uid == "u1"
    assert a_roster([a_member(1, age=299, placed=False), ready(2)]).unplaced(NOW) is None
