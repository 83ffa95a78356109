"""Shares under any sequence of tenants who come, hold, and go."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandpool.base.shares import ALPHA, OPERATOR, Decision, Revoke, Shares

TENANTS = st.sampled_from(["a", "b", "c", "d", OPERATOR])


class FairShares(RuleBasedStateMachine):
    """What can be taken back. The model is what each tenant really holds."""

    @initialize(total=st.integers(1, 12))
    def begin(self, total: int) -> None:
        self.shares = Shares(total)
        self.held: dict[str, int] = {}

    def _tenants(self) -> dict[str, int]:
        return {tenant: number for tenant, number in self.held.items() if number and tenant}

    @rule(tenant=TENANTS)
    def wants(self, tenant: str) -> None:
        total, mine, others = self.shares.total, self.held.get(tenant, 0), self._tenants()
        verdict = self.shares.ask(tenant)
        if not tenant:
            assert verdict is (Decision.ADMIT if mine < total else Decision.REFUSE)
        elif sum(others.values()) < total:
            assert verdict is Decision.ADMIT  # work-conserving: nobody is refused what nobody uses
        elif mine + 1 <= total / len(others | {tenant: 1}):
            assert isinstance(verdict, Revoke)  # never refused below the fair share
            assert others[verdict.holder] > total / len(
                others | {tenant: 1}
            )  # only whoever is above it loses something
        if isinstance(verdict, Revoke):
            assert self.held[verdict.holder] - 1 >= mine + 1  # it does not go round in circles
            self._give(verdict.holder)
        if verdict is not Decision.REFUSE:
            self.held[tenant] = mine + 1
            self.shares.take(tenant)

    @rule(tenant=TENANTS)
    def gives_back(self, tenant: str) -> None:
        if self.held.get(tenant):
            self._give(tenant)

    def _give(self, tenant: str) -> None:
        self.held[tenant] -= 1
        self.shares.take(tenant, -1)

    @invariant()
    def never_more_than_there_is(self) -> None:
        if hasattr(self, "shares"):
            assert sum(self._tenants().values()) == self.shares.used <= self.shares.total
            assert self.shares.held == self._tenants()
            assert self.shares.own == self.held.get(OPERATOR, 0) <= self.shares.total


class StayingShares(RuleBasedStateMachine):
    """What stays until its holder gives it back, in amounts of any size."""

    @initialize(total=st.integers(1, 2000))
    def begin(self, total: int) -> None:
        self.shares = Shares(total)
        self.held: dict[str, int] = {}

    @rule(tenant=st.sampled_from("abcd"), amount=st.integers(1, 300))
    def wants(self, tenant: str, amount: int) -> None:
        mine, used = self.held.get(tenant, 0), sum(self.held.values())
        free = self.shares.total - used
        if self.shares.fits(tenant, amount):
            assert amount <= free
            assert mine + amount <= ALPHA * (free - amount) or (mine == 0 and amount == 1)
            self.held[tenant] = mine + amount
            self.shares.take(tenant, amount)
        else:
            assert mine + amount > ALPHA * (free - amount)
            alone = used == mine
            assert not alone or mine + amount > self.shares.total * ALPHA // (
                ALPHA + 1
            )  # work-conserving, but for a ninth

    @rule(tenant=st.sampled_from("abcd"), part=st.floats(0, 1))
    def gives_back(self, tenant: str, part: float) -> None:
        amount = int(self.held.get(tenant, 0) * part)
        if amount:
            self.held[tenant] -= amount
            self.shares.take(tenant, -amount)

    @invariant()
    def there_is_room_for_somebody_new(self) -> None:
        if hasattr(self, "shares"):
            used = sum(self.held.values())
            assert self.shares.used == used <= self.shares.total
            assert used == self.shares.total or self.shares.room("new") >= 1


TestFairShares = FairShares.TestCase
TestStayingShares = StayingShares.TestCase
