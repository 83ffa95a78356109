"""What counts as memory that somebody else holds, when a sandbox has ended."""

from __future__ import annotations

from sandpool.local.backends.namespaces.held_memory import MOST, Left, left_1, left_2

MIB = 1 << 20


def test_on_version_1_copies_of_files_are_left_out_and_the_kernels_own_memory_is_uncertain() -> None:
    stat = f"cache 1\ntotal_cache {50 * MIB}\ntotal_shmem {20 * MIB}\ntotal_swap {2 * MIB}\n"
    assert left_1(60 * MIB, 5 * MIB, 3 * MIB, stat) == Left(surely=(60 - 5 - 30 + 3 + 2) * MIB, perhaps=5 * MIB)


def test_on_version_2_the_kernel_says_what_it_only_remembers() -> None:
    stat = f"anon 0\nfile {50 * MIB}\nshmem {20 * MIB}\nslab_reclaimable {8 * MIB}\n"
    assert left_2(60 * MIB, 2 * MIB, stat) == Left(surely=(60 - 30 - 8 + 2) * MIB)


def test_a_group_that_is_gone_holds_nothing() -> None:
    assert left_1(0, 0, 0, "") == left_2(0, 0, "") == Left()


def test_a_little_does_not_matter() -> None:
    assert not Left(MOST, MOST).matters
    assert Left(MOST + 1).matters
    assert Left(0, MOST + 1).matters
