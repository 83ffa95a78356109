"""Which disk, which share of it, and what a machine does not hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandpool.node.runtimes.namespaces import cgroup_settings


def block(folder: Path, number: str, scheduler: str, part: str = "") -> Path:
    """A /sys/dev/block with one disk and, if named, a partition of it."""
    disk = folder / "devices" / "sda"
    (disk / "queue").mkdir(parents=True)
    (disk / "queue" / "scheduler").write_text(scheduler)
    (disk / "dev").write_text(f"{number}\n")
    links = folder / "block"
    links.mkdir()
    (links / number).symlink_to(disk)
    if part:
        (disk / "sda1").mkdir()
        (disk / "sda1" / "partition").write_text("1\n")
        (links / part).symlink_to(disk / "sda1")
    return links


def test_the_disk_of_a_folder(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    assert disk_of(tmp_path, "one", number) == number
    assert disk_of(tmp_path, "two", "9:9", number) == "9:9"
    assert disk_of(tmp_path, "three", "9:9") == ""


def disk_of(folder: Path, name: str, number: str, part: str = "") -> str:
    return cgroup_settings.disk_of(folder / "not" / "yet", block(folder / name, number, "", part))


@pytest.mark.parametrize(
    ("scheduler", "costs", "shares"),
    [
        ("none [mq-deadline] bfq\n", "", False),
        ("none mq-deadline [bfq]\n", "", True),
        ("[none]\n", "8:0 enable=1 ctrl=auto\n", True),
        ("[none]\n", "8:0 enable=0 ctrl=auto\n8:16 enable=1 ctrl=auto\n", False),
    ],
)
def test_whether_groups_have_a_share(tmp_path: Path, scheduler: str, costs: str, shares: bool) -> None:
    links = block(tmp_path, "8:0", scheduler)
    assert cgroup_settings.shares_by_weight("8:0", costs, links) is shares
    assert not cgroup_settings.shares_by_weight("", costs, links)


def test_a_pod_says_what_is_not_held() -> None:
    assert cgroup_settings.io_note(None, "", None) == ""
    assert cgroup_settings.io_note(50, "8:0", 2) == ""
    assert "not on one disk" in cgroup_settings.io_note(50, "", None)
    assert "no control group" in cgroup_settings.io_note(50, "8:0", None)
    assert "direct or synced" in cgroup_settings.io_note(50, "8:0", 1)
