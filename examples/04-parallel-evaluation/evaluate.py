"""Evaluates many programs at once, each in its own sandbox.

    sandpool up --detach
    python examples/04-parallel-evaluation/evaluate.py

Thirty candidates for a function are graded against tests: some are right, some wrong, some never end, and one tries to cheat by looking
for the answers on the disk. Each one runs in a new sandbox that is never reused. A few run at a time, while the pool refills.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from sandpool import AsyncConnection, AsyncSandbox

AT_ONCE = 6
SECONDS = 5  # for one program; a correct one needs a fraction of a second
CASES = "".join(f"assert fib({n}) == {value}\n" for n, value in ((0, 0), (1, 1), (10, 55), (20, 6765)))
RIGHT = "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
WRONG = "def fib(n):\n    return n\n"
ENDLESS = "def fib(n):\n    while True:\n        pass\n"
CHEATING = "def fib(n):\n    return eval(open('/etc/sandpool-answers').read())[n]\n"
CANDIDATES = [*[RIGHT] * 17, *[WRONG] * 10, *[ENDLESS] * 2, CHEATING]


async def grade(program: str, turn: asyncio.Semaphore, connection: AsyncConnection) -> str:
    async with turn, AsyncSandbox.claim("python", ttl=300, timeout=60, connection=connection) as box:
        result = await box.run(["python3", "-"], stdin=program + CASES, timeout=SECONDS)
        if result.timed_out:
            return "no answer in time"
        return "passed" if result.exit_code == 0 else result.stderr.strip().splitlines()[-1].partition(":")[0]


async def main() -> None:
    began = time.perf_counter()
    turn = asyncio.Semaphore(AT_ONCE)
    async with AsyncConnection() as connection:  # shared, so that claims need no TLS handshake of their own
        grades = Counter(await asyncio.gather(*(grade(program, turn, connection) for program in CANDIDATES)))
    for grade_, count in grades.most_common():
        print(f"{count:3}  {grade_}")
    print(f"{len(CANDIDATES)} programs in {len(CANDIDATES)} sandboxes, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
