"""Questions to the API server: asked once, remembered within bounds, and never for what is no token."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.kube.errors import Unavailable
from sandpool.router.authentication import AuthorityCache, CacheOptions
from sandpool.router.ports import Caller
from support.clocks.manual_clock import ManualClock
from support.network.gate_parts import Register


class SlowRegister(Register):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.at_once = self.most_at_once = 0

    async def caller(self, token: str) -> Caller | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.open.wait()
            return await super().caller(token)
        finally:
            self.at_once -= 1


async def test_those_who_wait_for_the_same_answer_ask_once() -> None:
    register = SlowRegister()
    callers = AuthorityCache(register, ManualClock())
    asked = [asyncio.create_task(callers.authenticate("admin-token")) for _ in range(20)]
    await asyncio.sleep(0)
    register.open.set()
    assert {one.name for one in await asyncio.gather(*asked) if one is not None} == {"admin"}
    assert register.asked == ["who admin-token"]


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    register = SlowRegister()
    callers = AuthorityCache(register, ManualClock())
    first, second = (asyncio.create_task(callers.authenticate("admin-token")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    register.open.set()
    assert await second == Caller("admin")
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_flood_of_made_up_tokens_is_asked_about_a_few_at_a_time() -> None:
    register = SlowRegister()
    callers = AuthorityCache(register, ManualClock(), CacheOptions(asked=4))
    asked = [asyncio.create_task(callers.authenticate(f"made-up-{number}")) for number in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)
    register.open.set()
    assert await asyncio.gather(*asked) == [None] * 50
    assert register.most_at_once == 4


async def test_what_is_remembered_is_bounded_and_what_is_used_stays() -> None:
    register = Register()
    callers = AuthorityCache(register, ManualClock(), CacheOptions(most=10))
    for number in range(100):
        await callers.authenticate(f"made-up-{number}")
        await callers.authenticate("admin-token")
    assert register.asked.count("who admin-token") == 1
    await callers.authenticate("made-up-0")
    assert register.asked.count("who made-up-0") == 2


async def test_a_no_is_forgotten_sooner_than_a_yes() -> None:
    clock, register = ManualClock(), Register()
    callers = AuthorityCache(register, clock, CacheOptions(yes=10, no=3))
    for _ in range(2):
        assert not await callers.may_use(Caller("other"), "default")
        assert await callers.may_use(Caller("admin"), "default")
    assert len(register.asked) == 2
    clock.advance(3)
    register.rights["other"] = {"default"}
    assert await callers.may_use(Caller("other"), "default")
    assert await callers.may_use(Caller("admin"), "default")
    assert len(register.asked) == 3


async def test_groups_are_part_of_who_somebody_is() -> None:
    register = Register()
    callers = AuthorityCache(register, ManualClock())
    await callers.may_use(Caller("admin", groups=("a",)), "default")
    await callers.may_use(Caller("admin", groups=("b",)), "default")
    assert len(register.asked) == 2


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "ä", "x" * 20_000])
async def test_what_is_no_token_is_not_asked_about(token: str) -> None:
    register = Register()
    assert await AuthorityCache(register, ManualClock()).authenticate(token) is None
    assert register.asked == []


async def test_a_failure_is_told_to_all_and_remembered_by_nobody() -> None:
    register = Register(trouble=Unavailable("not now"))
    callers = AuthorityCache(register, ManualClock())
    for _ in range(2):
        with pytest.raises(Unavailable):
            await callers.authenticate("admin-token")
    assert len(register.asked) == 2
