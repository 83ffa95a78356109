from __future__ import annotations

import pytest

from sandpool.loop.health import Ages, Seen, stale_caches, unknown_lease

AGES = Ages(silent=300, failing=15, lease=15)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen("pods", 0.1), ""),
        (Seen("pods", 299), ""),
        (Seen("pods", 301), "nothing was heard about pods for 301 s"),
        (Seen("pods", None), "the cache of pods is not filled"),
        (Seen("pods", None, "Forbidden: no"), "the cache of pods is not filled: Forbidden: no"),
        (Seen("pods", 14, "Refused: gone"), ""),  # a server may be restarted
        (Seen("pods", 16, "Refused: gone"), "the cache of pods is 16 s old: Refused: gone"),
    ],
)
def test_caches(seen: Seen, said: str) -> None:
    assert stale_caches([seen], AGES) == ([said] if said else [])


def test_every_cache_is_told() -> None:
    assert len(stale_caches([Seen("a", None), Seen("b", 1), Seen("c", None)], AGES)) == 2


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen("x", 2), ""),
        (Seen("x", 2, "Conflict: raced"), ""),
        (Seen("x", None), "it is not known who holds the lease x"),
        (Seen("x", 16, "Refused: gone"), "it is not known since 16 s who holds the lease x: Refused: gone"),
    ],
)
def test_lease(seen: Seen, said: str) -> None:
    assert unknown_lease(seen, AGES) == ([said] if said else [])
