"""Messages between the main process, the fork server and its workers: one JSON object plus open files, over SOCK_SEQPACKET.

A message that does not fit into a packet is sent in a memfd. Both have a size limit, so that neither side can make the other allocate without
bound. The response to a request that fails is `Refused`, with reason and message for a pod's status.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

MOST_INLINE = 32 * 1024
MOST_BYTES = 4 * 1024 * 1024
MOST_FILES = 64

Message = dict[str, Any]


class Refused(Exception):
    """A request that cannot be fulfilled. `reason` is one word; `message` says what failed and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


def error_text(error: Refused | OSError) -> str:
    """The text of an error inside another message, without its reason."""
    return error.message if isinstance(error, Refused) else (error.strerror or str(error)).lower()


class Malformed(Exception):
    """The received data is not a message; the connection must be closed."""


@contextmanager
def doing(what: str, reason: str = "CreateContainerError") -> Iterator[None]:
    """Turns an OSError in the block into Refused; `what` says what was being done."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise Refused(reason, f"{what}: {(error.strerror or str(error)).lower()}{where}") from error


def encode(message: Message) -> tuple[bytes, int | None]:
    """Returns the packet and, if the message is too long for one, the memfd that holds it, which the caller closes."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) <= MOST_INLINE:
        return body, None
    if len(body) > MOST_BYTES:
        raise Refused("TooLong", f"command, environment and mounts take {len(body)} bytes; the limit is {MOST_BYTES}")
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(memory), "wb") as file:
        file.write(body)
    return b"@%d" % len(body), memory


def send(sock: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    """Sends a message. Blocks until there is room in the socket."""
    packet, memory = encode(message)
    try:
        send_packet(sock, packet, files if memory is None else (memory, *files))
    finally:
        if memory is not None:
            os.close(memory)


def send_packet(sock: socket.socket, packet: bytes, files: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    sock.sendmsg([packet], rights, socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Receives the next message and its files, which the caller owns; None at the end. Raises Malformed, after closing the files."""
    packet, files, flags = _receive_packet(sock)
    if not packet and not files:
        return None
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Malformed("a packet did not fit")
        if packet.startswith(b"@"):
            packet = _long(packet, files)
        message = json.loads(packet)
        if not isinstance(message, dict):
            raise Malformed("a packet is not a JSON object")
    except (ValueError, RecursionError, OSError, Malformed) as error:
        for file in files:
            os.close(file)
        raise error if isinstance(error, Malformed) else Malformed(str(error)) from error
    return message, files


def _receive_packet(sock: socket.socket) -> tuple[bytes, list[int], int]:
    room = socket.CMSG_SPACE(MOST_FILES * array.array("i").itemsize)
    packet, rights, flags, _ = sock.recvmsg(MOST_INLINE + 1, room, socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return packet, list(files), flags


def _long(packet: bytes, files: list[int]) -> bytes:
    length = int(packet[1:12])
    if not files or not 0 < length <= MOST_BYTES:
        raise Malformed("a long message has no body")
    memory = files.pop(0)
    try:
        return os.pread(memory, length, 0)
    finally:
        os.close(memory)
