"""Which sandbox is ended when TCP connections take too much memory of the whole machine."""

from __future__ import annotations

import os
import socket

from sandpool.node.runtimes.namespaces.tcp_pressure import (
    PAGE,
    SOCKET_BYTES,
    TcpCounts,
    bound,
    fullest,
    machine_use,
    sandbox_use,
    tcp_counts,
    waiting,
)

MIB = 1 << 20
SOCKSTAT = """sockets: used 50
TCP: inuse 10 orphan 0 tw 81 alloc 4008 mem 17195
UDP: inuse 0 mem 17
"""
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TABLE = (
    HEAD
    + "   0: 0100007F:1F90 00000000:0000 0A 00000000:00001000 00:00000000 00000000     0        0 1 1 0000 100 0 0 10 0\n"
    + "   1: 0100007F:1F90 0100007F:8000 08 00000000:0000EA61 00:00000000 00000000     0        0 0 1 0000 20 4 0 10 -1\n"
    + "   2: 0100007F:8001 0100007F:1F90 01 00000010:00000000 00:00000000 00000000     0        0 0 1 0000 20 4 0 10 -1\n"
)


def test_counts_are_read() -> None:
    assert tcp_counts(SOCKSTAT) == TcpCounts(10, 4008, 17195)
    assert tcp_counts(SOCKSTAT).bytes == 17195 * PAGE + 4008 * SOCKET_BYTES
    assert tcp_counts("") == TcpCounts()


def test_what_waits_is_counted_but_not_how_many_wait_for_a_listener() -> None:
    assert waiting(TABLE) == 0xEA61 + 0x10
    assert waiting("") == 0


def test_the_bound_is_below_where_pressure_begins() -> None:
    assert bound("287901\t383870\t575802\n") == 383870 * PAGE * 3 // 4
    assert bound("") is None


def test_of_the_tenant_that_has_the_most_the_fullest_goes() -> None:
    few, many = {"a": 300 * MIB}, {"b": 200 * MIB, "c": 210 * MIB}
    assert fullest({"few": few, "many": many}, 800 * MIB) == "c"
    assert fullest({"few": few}, 800 * MIB) == "a"
    assert fullest({"idle": {"d": MIB}, "none": {}}, MIB) is None


def test_for_what_the_machine_itself_uses_nobody_is_ended() -> None:
    assert fullest({"a": {"b": 50 * MIB, "c": 40 * MIB}}, 800 * MIB) is None


def test_what_waits_in_a_real_network_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        one.sendall(bytes(50_000))
        assert sandbox_use([os.getpid()]) >= 50_000
        assert machine_use() > 0
    assert sandbox_use([]) == 0
