"""The same program without await."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "tools"))
from unasync import translate


def body(source: str) -> str:
    """What comes behind the head of a generated file."""
    return translate(source, "x.py").split("\n", 2)[2]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("async def f() -> None:\n    await g()\n", "def f() -> None:\n    g()\n"),
        ("async def f():\n    async with a as b:\n        pass\n", "def f():\n    with a as b:\n        pass\n"),
        ("async def f():\n    return [x async for x in y]\n", "def f():\n    return [x for x in y]\n"),
        ("class AsyncBox:\n    async def __aenter__(self): ...\n", "class Box:\n    def __enter__(self): ...\n"),
        ("def f() -> Awaitable[list[int]]: ...\n", "def f() -> list[int]: ...\n"),
        ("def f() -> Callable[[], Awaitable[int]]: ...\n", "def f() -> Callable[[], int]: ...\n"),
        ("def f() -> Opening[AsyncBox]:\n    return Opening(g(1))\n", "def f() -> Box:\n    return g(1)\n"),
        ("async def f():\n    await surely(g(1))\n", "def f():\n    g(1)\n"),
        ("raise StopAsyncIteration\n", "raise StopIteration\n"),
        ('"""Use AsyncBox in `async with`, and `await` it."""\n', '"""Use Box in `with`, and `await` it."""\n'),
        ('"""`box = await AsyncBox.claim()`"""\n', '"""`box = Box.claim()`"""\n'),
        ('x = "async"  # not a word of ours\n', 'x = "async"  # not a word of ours\n'),
    ],
)
def test_what_becomes_of_it(source: str, wanted: str) -> None:
    assert body(source) == wanted


def test_imports_are_of_the_other_world_and_unused_ones_go() -> None:
    source = (
        "from collections.abc import AsyncIterator, Awaitable\n\n"
        "from sandpool.sdk._async.http import Http\n\nx: AsyncIterator[Awaitable[Http]]\n"
    )
    assert body(source) == (
        "from collections.abc import Iterator\n\nfrom sandpool.sdk._sync.http import Http\n\nx: Iterator[Http]\n"
    )


def test_the_first_line_says_where_to_edit() -> None:
    assert translate("x = 1\n", "files.py").startswith("# generated from sdk/_async/files.py")
