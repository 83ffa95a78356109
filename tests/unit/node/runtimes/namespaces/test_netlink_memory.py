"""What waits in netlink sockets is seen."""

from __future__ import annotations

import os
import socket
import struct

from sandpool.node.runtimes.namespaces.netlink_memory import replies_of, waiting_replies

TABLE = """sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
000000006e2a2ad5 0   0          00000000 0        0        0     2        0        7
000000002a1c3d5e 0   1234       00000000 425984   0        0     2        0        991
00000000aa1c3d5e 15  1235       00000001 1024     0        0     2        0        992
"""
GET_LINK = struct.pack("=IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0)


def test_it_is_summed_over_all_sockets() -> None:
    assert waiting_replies(TABLE) == 425984 + 1024
    assert waiting_replies("") == 0


def test_what_nobody_reads_is_seen() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as sock:
        for _ in range(10):
            sock.send(GET_LINK)
        assert replies_of([os.getpid()]) > 10 * 512
    assert replies_of([]) == 0
