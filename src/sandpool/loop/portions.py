"""Spreads what follows from one event over several turns of the event loop.

A tenant may refer to one object from any number of others: ten thousand pools of one template, sandboxes that name one pod. A change of that object
concerns all of them, and other tenants must not wait until all are handled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

PORTION: Final = 256
"""How many items are handled in one turn."""


def in_portions(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Acts on each item, in order: on the first ones now, on the rest in the next turns of the event loop."""
    rest = iter(items)
    for item in islice(rest, PORTION):
        act(item)
    left = deque(rest)  # now, because it may be a live view
    if left:
        _schedule(left, act)


def _schedule(left: deque[T], act: Callable[[T], object]) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # there is nobody to wait
        for item in left:
            act(item)
    else:
        loop.call_soon(_act, left, act)


def _act(left: deque[T], act: Callable[[T], object]) -> None:
    for _ in range(min(PORTION, len(left))):
        act(left.popleft())
    if left:
        _schedule(left, act)
