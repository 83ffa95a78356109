"""What nobody reaches, in every form in which it can be written."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.network.forbidden import faces, forbidden

NEVER = [
    *("0.0.0.0", "0.1.2.3", "127.0.0.1", "127.64.0.9", "127.255.255.254", "169.254.0.1", "169.254.169.254"),
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16"),
    *("::", "::1", "fe80::1", "febf::1", "fec0::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "64:ff9b:1::1"),
]


@pytest.mark.parametrize("text", NEVER)
def test_these_are_refused_whatever_a_policy_says(text: str) -> None:
    assert forbidden(ip_address(text))


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "2606:4700::1111", "fd00::2", "fc00::1"]
)
def test_a_policy_decides_about_the_others(text: str) -> None:
    assert not forbidden(ip_address(text))


def _forms(inner: IPv4Address) -> dict[str, IPv6Address]:
    number = int(inner)
    return {
        "mapped": IPv6Address(0xFFFF << 32 | number),
        "compatible": IPv6Address(number),
        "translated": IPv6Address(0xFFFF << 48 | number),
        "nat64": IPv6Address(0x0064FF9B << 96 | number),
        "6to4": IPv6Address(0x2002 << 112 | number << 80 | 1),
        "teredo client": IPv6Address(0x20010000 << 96 | int(IPv4Address("9.9.9.9")) << 64 | number ^ 0xFFFFFFFF),
        "teredo server": IPv6Address(0x20010000 << 96 | number << 64 | 0x06060606),
        "isatap": IPv6Address(0x20010DB8 << 96 | 0x00005EFE << 32 | number),
        "isatap, global": IPv6Address(0x20010DB8 << 96 | 0x02005EFE << 32 | number),
    }


@pytest.mark.parametrize("form", list(_forms(IPv4Address(0))))
@pytest.mark.parametrize("text", ["127.0.0.1", "169.254.169.254", "10.1.2.3", "224.0.0.1", "8.8.8.8"])
def test_the_address_inside_another_one_is_judged(form: str, text: str) -> None:
    outer = _forms(IPv4Address(text))[form]
    assert IPv4Address(text) in faces(outer)
    if text.startswith(("127", "169", "224")):
        assert forbidden(outer)
    elif form != "teredo server":
        assert not forbidden(outer)


def test_a_mapped_address_is_ipv4_and_nothing_else() -> None:
    assert faces(ip_address("::ffff:10.1.2.3")) == (ip_address("10.1.2.3"),)


def test_a_zone_makes_no_difference() -> None:
    assert forbidden(ip_address("fe80::1%eth0"))
    assert faces(IPv6Address("::ffff:127.0.0.1%lo")) == (ip_address("127.0.0.1"),)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_and_its_mapped_form_are_the_same(address: IPv4Address) -> None:
    assert bool(forbidden(address)) == bool(forbidden(_forms(address)["mapped"]))


@given(st.ip_addresses())
def test_whatever_is_not_a_single_host_elsewhere_is_refused(address: IPv4Address | IPv6Address) -> None:
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert forbidden(address)
