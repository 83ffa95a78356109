"""Open connections are judged again when policies or labels change: soon, once for many changes, and on the writer's account.

Each namespace has at most one task that goes through its pods, and each pod waits for its tenant's turn (base/turns.py). Whoever writes
policies faster than its connections can be judged delays the judging of its own connections, and nobody else's work. New connections
do not wait for any of this: they are judged by what is written now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Rechecked(Protocol):
    async def recheck(self) -> None: ...


class Rechecks:
    def __init__(self) -> None:
        self._due: dict[str, dict[Rechecked, None]] = {}  # by namespace, in the order of asking
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, namespace: str, pods: Iterable[Rechecked]) -> None:
        """One that is due already is due once."""
        asked = dict.fromkeys(pods)
        if namespace in self._tasks:
            self._due[namespace].update(asked)
        elif asked:
            self._due[namespace] = asked
            self._tasks[namespace] = asyncio.create_task(self._run(namespace, asked))

    async def _run(self, namespace: str, due: dict[Rechecked, None]) -> None:
        try:
            while due:
                pod = next(iter(due))
                del due[pod]  # before it is judged: a change meanwhile makes it due again
                await pod.recheck()
        finally:
            del self._tasks[namespace], self._due[namespace]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
