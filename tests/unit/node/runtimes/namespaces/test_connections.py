"""Which sockets of an ended sandbox somebody else must hold."""

from __future__ import annotations

import socket

from sandpool.node.runtimes.namespaces.forked.connections import TcpSocket, any_other, foreign_listeners

LISTENING, ESTABLISHED, TIME_WAIT = 10, 1, 6


def a_socket(state: int, port: int) -> TcpSocket:
    return TcpSocket(socket.AF_INET, state, port.to_bytes(2, "big") + bytes(46))


def test_listeners_are_foreign_except_for_that_of_the_egress() -> None:
    ours, other = a_socket(LISTENING, 3128), a_socket(LISTENING, 80)
    assert foreign_listeners([ours, other, a_socket(ESTABLISHED, 80)], 3128) == [other]


def test_connections_may_be_ours_and_anything_else_is_not() -> None:
    found = [a_socket(LISTENING, 3128), a_socket(ESTABLISHED, 3128), a_socket(TIME_WAIT, 3128)]
    assert not any_other(2, found)
    assert any_other(3, found)
    assert not any_other(0, [])
