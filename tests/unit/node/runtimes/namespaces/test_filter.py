"""The seccomp filter, run as the kernel would run it."""

from __future__ import annotations

import errno
import struct

import pytest

from sandpool.node.runtimes.namespaces.forked.seccomp import (
    ALLOW,
    AND,
    ERROR,
    JUMP_EQUAL,
    JUMP_GREATER,
    JUMP_SET,
    KILL,
    LOAD,
    RETURN,
    Architecture,
    architecture,
    assemble,
    instructions,
)
from sandpool.node.runtimes.namespaces.forked.seccomp_calls import ABSENT, FORBIDDEN, JUDGED

MACHINES = {"x86_64": 0, "aarch64": 1}
# The last call that somebody has looked at is mseal. On x86_64 there are none from 335 to 423; on arm64, none from 244 to 259 either.
GAPS = {
    "x86_64": {*range(335, 424), *range(463, 600)},
    "aarch64": {*range(244, 260), *range(295, 424), *range(463, 600)},
}


def known(machine: str) -> Architecture:
    found = architecture(machine)
    assert found is not None
    return found


def run(machine: Architecture, number: int, *arguments: int, audit: int | None = None) -> int:
    """The verdict on one call."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number, audit or machine.audit, 0, *(each & (1 << 64) - 1 for each in padded))
    program = list(struct.iter_unpack("=HBBI", assemble(machine)))
    value, at = 0, 0
    while True:
        code, true, false, constant = program[at]
        at += 1
        if code == LOAD:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == AND:
            value &= constant
        elif code == RETURN:
            return int(constant)
        else:
            compare = {JUMP_EQUAL: value == constant, JUMP_GREATER: value >= constant, JUMP_SET: bool(value & constant)}
            at += true if compare[code] else false


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_forbidden_is_refused_and_the_rest_allowed(machine: str) -> None:
    column, known_machine = MACHINES[machine], known(machine)
    forbidden = {pair[column] for pair in FORBIDDEN.values()} - {None}
    absent = {pair[column] for pair in ABSENT.values()}
    judged = {pair[column] for pair in JUDGED.values()}
    for number in range(600):
        if number in judged:
            continue
        unknown = number in absent or number in GAPS[machine]
        wanted = ERROR | errno.EPERM if number in forbidden else ERROR | errno.ENOSYS if unknown else ALLOW
        assert run(known_machine, number) == wanted, number


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "verdict"),
    [
        ("clone", (0x01200011,), ALLOW),  # fork
        ("clone", (0x003D0F00,), ALLOW),  # a thread
        ("clone", (0x10000011,), ERROR | errno.EPERM),
        ("clone", (0x00020011,), ERROR | errno.EPERM),
        ("clone", (0x40000011,), ERROR | errno.EPERM),
        ("clone", (0x00000411,), ERROR | errno.EINVAL),  # a process that shares the table of files
        ("clone", (0x00004111,), ALLOW),  # vfork
        ("clone", (0x00010900,), ALLOW),  # a thread with a table of its own
        ("clone3", (), ERROR | errno.ENOSYS),
        ("socket", (1, 1, 0), ALLOW),
        ("socket", (2, 1, 0), ALLOW),
        ("socket", (10, 2, 0), ALLOW),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 9), ERROR | errno.EAFNOSUPPORT),
        ("socket", (17, 3, 0), ERROR | errno.EAFNOSUPPORT),
        ("socket", (40, 1, 0), ERROR | errno.EAFNOSUPPORT),
        ("socket", (2, 0o2000001, 6), ALLOW),
        ("socket", (10, 2, 17), ALLOW),
        ("socket", (2, 2, 1), ALLOW),
        ("socket", (10, 2, 58), ALLOW),
        ("socket", (2, 1, 262), ERROR | errno.EPROTONOSUPPORT),  # MPTCP
        ("socket", (10, 1, 262), ERROR | errno.EPROTONOSUPPORT),
        ("socket", (2, 1, 132), ERROR | errno.EPROTONOSUPPORT),  # SCTP
        ("socket", (2, 2, 136), ERROR | errno.EPROTONOSUPPORT),  # UDP-Lite
        ("socketpair", (1, 1, 0), ALLOW),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), ERROR | errno.EPERM),
        ("ioctl", (0, 0xFF_0000_5412), ERROR | errno.EPERM),  # the kernel looks at the low half only
        ("ioctl", (0, 0x541C), ERROR | errno.EPERM),
        ("ioctl", (0, 0x5423), ERROR | errno.EPERM),
        ("ioctl", (0, 0x40305828), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x4030582A), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x40305839), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x4030580A), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x40305824), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x4030580B), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x40305825), ERROR | errno.EOPNOTSUPP),
        ("ioctl", (0, 0x401C5820), ERROR | errno.EOPNOTSUPP),  # how much each write takes
        ("ioctl", (0, 0x4030582B), ALLOW),  # gives room back
        ("ioctl", (0, 0x5000940E), ERROR | errno.ENOTTY),  # a subvolume
        ("ioctl", (0, 0x50009417), ERROR | errno.ENOTTY),  # a snapshot
        ("ioctl", (0, 0x4008941A), ERROR | errno.ENOTTY),  # that is read-only
        ("ioctl", (0, 0x40049409), ALLOW),  # copies that share their blocks
        ("ioctl", (0, 0x4020940D), ALLOW),
        ("ioctl", (0, 0xC0189436), ALLOW),
        ("ioctl", (0, 0x802C542A), ALLOW),  # TCGETS2
        ("ioctl", (0, 0x541B), ALLOW),  # FIONREAD
        ("ioctl", (0, 0x8912), ALLOW),  # SIOCGIFCONF
        ("ioctl", (0, 0x80086601), ALLOW),  # flags of a file
        ("ioctl", (0, 0xC020660B), ALLOW),  # its extents
        ("ioctl", (0, 0xC0506617), ERROR | errno.ENOTTY),  # a key for the whole file system
        ("ioctl", (0, 0x5760), ERROR | errno.ENOTTY),  # the size of a queue of notifications
        ("ioctl", (0, 0xB701), ERROR | errno.ENOTTY),  # the namespace above
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0,), ALLOW),
        ("personality", (0x0040000,), ERROR | errno.EPERM),
        ("fallocate", (3, 0, 0, 1 << 40), ERROR | errno.EOPNOTSUPP),
        ("fallocate", (3, 1, 0, 1 << 40), ERROR | errno.EOPNOTSUPP),
        ("fallocate", (3, 3, 0, 1 << 40), ALLOW),  # gives room back
        ("setsockopt", (3, 1, 8), ALLOW),
        ("setsockopt", (3, 6, 26), ALLOW),  # of TCP, not of sockets
        ("setsockopt", (3, 1, 26), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 1, 50), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 1, 51), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 1, 52), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 6, 1), ALLOW),
        ("setsockopt", (3, 6, 14), ERROR | errno.ENOPROTOOPT),  # keys that sign segments
        ("setsockopt", (3, 6, 32), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 6, 38), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 6, 40), ERROR | errno.ENOPROTOOPT),
        ("setsockopt", (3, 6, 31), ERROR | errno.ENOPROTOOPT),  # TLS in the kernel
        ("setsockopt", (3, 41, 26), ALLOW),
        ("setsockopt", (3, 41, 32), ERROR | errno.ENOPROTOOPT),  # flow labels
        ("setsockopt", (3, 1, 32), ALLOW),
        ("ioprio_set", (1, 0, 0), ALLOW),
        ("ioprio_set", (1, 0, 0x4004), ALLOW),
        ("ioprio_set", (1, 0, 0x4007), ALLOW),
        ("ioprio_set", (1, 0, 0x6000), ALLOW),
        ("ioprio_set", (1, 0, 0x4000), ERROR | errno.EPERM),
        ("ioprio_set", (1, 0, 0x4003), ERROR | errno.EPERM),
        ("ioprio_set", (1, 0, 0x400B), ERROR | errno.EPERM),  # with a hint above the level
        ("ioprio_set", (1, 0, 0x2000), ERROR | errno.EPERM),
        ("mmap", (0, 4096, 3, 0x22), ALLOW),
        ("mmap", (0, 4096, 3, 0x22 | 0x40000 | 21 << 26), ERROR | errno.ENOMEM),
        ("memfd_create", (0, 1), ALLOW),
        ("memfd_create", (0, 5), ERROR | errno.ENOMEM),
        ("shmget", (1, 4096, 0o1600), ALLOW),
        ("shmget", (1, 4096, 0o5600), ERROR | errno.ENOMEM),
        ("prlimit64", (0, 7, 1, 0), ALLOW),
        ("prlimit64", (1, 7, 1, 0), ERROR | errno.EPERM),
        ("prlimit64", (0, 4, 0, 1), ALLOW),
        ("prlimit64", (0, 4, 0x1000, 0), ERROR),
        ("prlimit64", (0, 4, 1 << 40, 0), ERROR),
        ("prlimit64", (1, 4, 1 << 40, 0), ERROR | errno.EPERM),
        ("fcntl", (3, 4, 2048), ALLOW),
        ("fcntl", (3, 1025), ALLOW),  # asks for one
        ("fcntl", (3, 1033, 15), ALLOW),  # seals
        ("fcntl", (3, 1024, 1), ERROR | errno.EINVAL),
        ("fcntl", (3, 0xFF_0000_0400, 1), ERROR | errno.EINVAL),
        ("fcntl", (3, 1040, 0x1000), ERROR | errno.EINVAL),
        ("fcntl", (3, 6, 0x1000), ALLOW),  # a lock of the process
        ("fcntl", (3, 36, 0x1000), ERROR | errno.EINVAL),
        ("fcntl", (3, 37, 0x1000), ERROR | errno.EINVAL),  # one of the open file
        ("fcntl", (3, 38, 0x1000), ERROR | errno.EINVAL),
        ("ppoll", (0, 1024), ALLOW),
        ("ppoll", (0, 1025), ERROR | errno.EINVAL),
        ("pselect6", (1024,), ALLOW),
        ("pselect6", (1025,), ERROR | errno.EINVAL),
        ("pselect6", (-1,), ERROR | errno.EINVAL),
        ("setxattr", (0, 0, 0, 480), ALLOW),
        ("setxattr", (0, 0, 0, 481), ERROR | errno.E2BIG),
        ("lsetxattr", (0, 0, 0, 1 << 32), ERROR | errno.E2BIG),
        ("fsetxattr", (0, 0, 0, 65536), ERROR | errno.E2BIG),
        ("madvise", (0, 4096, 4), ALLOW),
        ("madvise", (0, 4096, 12), ERROR | errno.EINVAL),
        ("prctl", (1, 9), ALLOW),
        ("prctl", (62, 1, 0, 0, 0), ERROR | errno.EINVAL),
        ("setrlimit", (7, 1), ALLOW),
        ("setrlimit", (4, 1), ERROR),
    ],
)
def test_some_are_judged_by_their_arguments(machine: str, name: str, arguments: tuple[int, ...], verdict: int) -> None:
    found = known(machine)
    assert run(found, found.judged[name], *arguments) == verdict


def test_what_only_one_architecture_has_is_judged_there() -> None:
    found = known("x86_64")
    assert run(found, found.judged["poll"], 0, 1024) == run(found, found.judged["select"], 1024) == ALLOW
    assert run(found, found.judged["poll"], 0, 1025) == ERROR | errno.EINVAL
    assert run(found, found.judged["select"], 65536) == ERROR | errno.EINVAL
    assert {"poll", "select"}.isdisjoint(known("aarch64").judged)


def test_other_architectures_are_ended() -> None:
    x86, arm = known("x86_64"), known("aarch64")
    assert run(x86, 39, audit=0x40000003) == KILL  # 32 bits
    assert run(arm, 39, audit=0x40000028) == KILL
    assert run(x86, 0x40000000 + 39) == KILL  # x32
    assert architecture("riscv64") is None


@pytest.mark.parametrize("machine", MACHINES)
def test_no_jump_leaves_the_program(machine: str) -> None:
    program = instructions(known(machine))
    assert len(program) < 4096
    for at, (code, true, false, _) in enumerate(program):
        if code != RETURN:
            assert max(true, false) + at + 1 < len(program)
            assert max(true, false) < 256


def test_the_numbers_are_those_of_the_machines_headers() -> None:
    """Where the headers of this machine are installed."""
    from pathlib import Path

    paths = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
    seen = 0
    for machine, path in paths.items():
        if not Path(path).exists():
            continue
        lines = [line.split() for line in Path(path).read_text().splitlines()]
        numbers = {
            words[1]: int(words[2])
            for words in lines
            if len(words) == 3 and words[1].startswith("__NR") and words[2].isdigit()
        }
        for name, pair in {**FORBIDDEN, **ABSENT, **JUDGED}.items():
            number = numbers.get(f"__NR_{name}", numbers.get(f"__NR3264_{name}"))
            if number is not None:
                assert pair[MACHINES[machine]] == number, (machine, name)
                seen += 1
    if not seen:
        pytest.skip("no headers of the kernel here")
