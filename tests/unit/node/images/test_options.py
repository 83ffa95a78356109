"""Which of several platforms is taken."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sandpool.node.images.options import Platform, choose, this_machine


@dataclass(frozen=True)
class Offer:
    name: str
    platform: Platform | None


def offer(text: str) -> Offer:
    return Offer(text, Platform(*text.split("/")) if text != "unnamed" else None)


@pytest.mark.parametrize(
    ("wanted", "offered", "taken"),
    [
        ("linux/amd64", ["linux/arm64", "linux/amd64"], "linux/amd64"),
        ("linux/amd64", ["linux/amd64/v3", "linux/amd64"], "linux/amd64"),
        ("linux/amd64", ["windows/amd64", "linux/arm64"], None),
        ("linux/arm64", ["linux/arm/v7", "linux/arm64/v8"], "linux/arm64/v8"),
        ("linux/arm/v7", ["linux/arm/v5", "linux/arm/v6", "linux/arm/v7"], "linux/arm/v7"),
        ("linux/arm/v7", ["linux/arm/v5", "linux/arm/v6"], "linux/arm/v6"),
        ("linux/arm/v6", ["linux/arm/v7"], None),
        ("linux/amd64", ["unnamed", "linux/amd64"], "linux/amd64"),
        ("linux/amd64", ["unnamed", "linux/arm64"], "unnamed"),
        ("linux/amd64", ["unknown/unknown", "linux/amd64"], "linux/amd64"),
        ("linux/amd64", [], None),
    ],
)
def test_choice(wanted: str, offered: list[str], taken: str | None) -> None:
    chosen = choose([offer(one) for one in offered], Platform(*wanted.split("/")))
    assert (chosen.name if chosen else None) == taken


def test_this_machine_has_a_platform() -> None:
    assert this_machine().os == "linux"
    assert this_machine().architecture not in ("", "x86_64", "aarch64")
