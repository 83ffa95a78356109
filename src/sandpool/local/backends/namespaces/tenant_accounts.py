"""How much memory the sandboxes of one tenant may use together, and when that is looked at again. Pure: time is an argument.

The kernel goes on counting what a removed control group left in use, in the groups above it. So the group of a tenant counts its living
sandboxes and what its ended ones left with others: open files, sockets and namespaces that were given away. With a limit of what the living
ones may have, and some spare, that can grow into nobody else's memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.local.backends.namespaces.cgroups import DEFAULT_SOCKET_BYTES, LEAST_SOCKET_BYTES, SOCKETS, socket_bytes

BOUNDLESS = 1 << 62
SPARE, SPARE_PART = 32 << 20, 8
"""What the kernel needs for the groups themselves, and so that not every start has to write."""
MARGIN = 4 << 20  # what may be taken between a look and a write
CHUNK = 32 << 20  # reclaimed at a time

INTERVAL, LONGEST = 1.0, 60.0  # seconds between attempts to lower a limit
LINGER = 600.0
"""Seconds that the group of a tenant without sandboxes stays. Whoever ends and begins again has the same account."""
NOTED = 16 << 20  # bytes that ended sandboxes left in use, and that are told
LOOK = 10.0  # seconds between looks at that
NOTHING = 256 << 10  # bytes: as good as none


@dataclass(frozen=True, slots=True)
class Allowance:
    """Bytes of memory and, where these are counted apart, of buffers of sockets."""

    memory: int = BOUNDLESS
    sockets: int = BOUNDLESS

    def within(self, other: Allowance) -> bool:
        return self.memory <= other.memory and self.sockets <= other.sockets

    def or_more(self, other: Allowance) -> Allowance:
        return Allowance(max(self.memory, other.memory), max(self.sockets, other.sockets))


def writes(version: int, old: Allowance, new: Allowance) -> list[tuple[str, str, bool]]:
    """What is written, in an order that version 1 takes: the limit with swap is never below the one without. The last part says whether
    it must be possible."""
    found: list[tuple[str, str, bool]] = []
    if new.memory != old.memory:
        if version == 2:
            found.append(("memory.max", _text(version, new.memory), True))
        else:
            text = _text(version, new.memory)
            both = [("memory.limit_in_bytes", text, True), ("memory.memsw.limit_in_bytes", text, False)]
            found += both if new.memory < old.memory else both[::-1]
    if new.sockets != old.sockets and version == 1:
        found.append((SOCKETS, _text(version, new.sockets), False))
    return found


def _text(version: int, number: int) -> str:
    if number < BOUNDLESS:
        return str(number)
    return "-1" if version == 1 else "max"


def pressed(wanted: Allowance, used: Allowance) -> int:
    """Bytes of copies of files that the kernel should give up in the next step: only so many that it is soon done. 0: none."""
    return min(CHUNK, max(0, used.memory + MARGIN - wanted.memory))


def eased(allowed: Allowance, wanted: Allowance, used: Allowance) -> Allowance:
    """A limit that can be had at once, also if more is in use than wanted, and then leaves a little to those who live. Never above
    what was allowed: it would follow whoever takes more."""
    memory = wanted.memory if used.memory + MARGIN <= wanted.memory else max(wanted.memory, used.memory + SPARE)
    return Allowance(min(allowed.memory, memory), min(allowed.sockets, max(wanted.sockets, used.sockets)))


@dataclass(slots=True)
class Account:
    """Of one tenant. `allowed` is what is written, or about to be."""

    allowed: Allowance = Allowance()
    fresh: bool = True  # nothing was written yet
    living: dict[str, int | None] = field(default_factory=dict)
    due: float | None = None  # when to look again
    linger: float = LINGER
    _memory: int = 0
    _sockets: int = 0
    _boundless: int = 0
    _idle_since: float | None = None
    _tries: int = 0
    _looked: float = -LOOK
    _left: int = 0
    _left_since: float | None = None
    _told: bool = False

    def enter(self, sandbox: str, memory: int | None) -> None:
        """Before it starts; without a limit of its own its tenant has none."""
        if sandbox in self.living:
            self._count(sandbox, -1)
        self.living[sandbox] = memory
        self._count(sandbox, 1)
        self._idle_since = None

    def leave(self, sandbox: str, now: float) -> None:
        """When nothing of it runs any more, and its groups are gone."""
        if sandbox not in self.living:
            return
        self._count(sandbox, -1)
        del self.living[sandbox]
        if not self.living:
            self._idle_since = now
        self._tries = 0
        self.due = now + INTERVAL if self.due is None else min(self.due, now + INTERVAL)

    def _count(self, sandbox: str, sign: int) -> None:
        memory = self.living[sandbox]
        self._memory += sign * (memory or 0)
        self._boundless += sign * (memory is None)
        self._sockets += sign * (DEFAULT_SOCKET_BYTES if memory is None else socket_bytes(memory))

    @property
    def least(self) -> Allowance:
        """With less, those who live could not have what they were promised."""
        return Allowance(BOUNDLESS if self._boundless else self._memory + SPARE, self._sockets)

    @property
    def wanted(self) -> Allowance:
        memory, sockets = self.least.memory + self._memory // SPARE_PART, self._sockets + self._sockets // SPARE_PART
        return Allowance(min(memory, BOUNDLESS), sockets + LEAST_SOCKET_BYTES)

    def raised(self) -> Allowance:
        """What is to be allowed before another one starts: the same as now, if that is enough."""
        if self.fresh:
            return self.wanted
        return self.allowed if self.least.within(self.allowed) else self.allowed.or_more(self.wanted)

    def expired(self, now: float) -> bool:
        """Whether its group has been without sandboxes for long enough to be removed."""
        return self._idle_since is not None and now >= self._idle_since + self.linger

    def stays(self, now: float) -> None:
        """It could not be removed; that is tried again after as long a time."""
        self._idle_since, self.due = now, now + max(INTERVAL, self.linger)

    def put_off(self, now: float) -> None:
        """Something went wrong."""
        self.due = now + LONGEST

    def looks(self, now: float) -> bool:
        """Whether it is time to add up what ended sandboxes left: that takes a look at each that lives."""
        return now >= self._looked + LOOK

    def presses(self, left: int | None) -> bool:
        """Copies of files that ended sandboxes have read are worth keeping, as long as they left nothing else."""
        return (self._left if left is None else left) > NOTED

    def settled(self, now: float, left: int | None) -> bool:
        """After an attempt to lower; `left` is what ended sandboxes left in use, if somebody looked. True: that should be told now, once."""
        waits = [] if self.due is None else [self.due - now]  # somebody left meanwhile
        if not self.allowed.within(self.wanted):
            waits.append(min(LONGEST, INTERVAL * 2**self._tries))
            self._tries = min(self._tries + 1, 8)
        tell = False
        if left is None:
            waits.append(max(INTERVAL, self._looked + LOOK - now))
        else:
            self._looked, self._left = now, left
            tell = self._noted(now, left)
            if left > NOTED:
                waits.append(LOOK if not self._told else LONGEST)
        if self._idle_since is not None:
            waits.append(max(0.0, self._idle_since + self.linger - now))
        self.due = now + min(waits) if waits else None
        return tell

    def _noted(self, now: float, left: int) -> bool:
        if left <= NOTED:
            self._left_since, self._told = None, False
            return False
        if self._left_since is None:
            self._left_since = now
        if self._told or now < self._left_since + LOOK:
            return False
        self._told = True
        return True
