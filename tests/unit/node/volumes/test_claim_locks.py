"""Threads wait for each other only if they use the same claim."""

from __future__ import annotations

import threading
from pathlib import Path

from sandpool.node.volumes.claim_locks import ClaimLocks
from sandpool.node.volumes.kinds import VolumeRoots, make_volume
from sandpool.node.volumes.spec import Claim, VolumeOptions, VolumeSpec


def test_a_claim_waits_for_its_own_users_only() -> None:
    locks, order = ClaimLocks(), []

    def use(uid: str) -> None:
        with locks.hold(uid):
            order.append(uid)

    with locks.hold("a"):
        same, other = threading.Thread(target=use, args=("a",)), threading.Thread(target=use, args=("b",))
        same.start()
        other.start()
        other.join()
        assert order == ["b"]
    same.join()
    assert order == ["b", "a"]
    assert len(locks) == 0


def test_one_claim_is_made_while_another_is(tmp_path: Path) -> None:
    """As when the file system of the first takes long to make."""
    roots = VolumeRoots(tmp_path / "pods", tmp_path / "claims", None)
    roots.claims.mkdir()
    with roots.claiming.hold("uid-of-a"):
        spec = VolumeSpec("v", Claim("team-b", "claim", "uid-of-b"))
        made = threading.Thread(target=make_volume, args=(roots, VolumeOptions(), "pod", spec, None))
        made.start()
        made.join(20)
        assert not made.is_alive()
    assert (roots.claims / "uid-of-b" / "data").is_dir()
