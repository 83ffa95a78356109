"""The way out of a real network namespace: a socket made inside, handed out, served from outside."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from sandpool.base.clock import SystemClock
from sandpool.node.network.contract import NetworkRequest
from sandpool.node.network.node_network import NodeNetwork
from sandpool.node.network.policy import Policies
from support.api.policy_bodies import LABELS, PUBLIC, network_policy
from support.node.outside_world import OutsideWorld, nobody_inside

INSIDE = """
import ctypes, fcntl, os, socket, struct, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000 | 0x40000000):  # a user and a network namespace
    sys.exit(77)
with socket.socket() as any_socket:
    flags = struct.pack("16sh14x", b"lo", 1)  # up
    fcntl.ioctl(any_socket, 0x8914, flags)
listener = socket.create_server(("127.0.0.1", 3128))
outside = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(outside, [b"x"], [listener.fileno()])
listener.close()

def ask(request):
    with socket.create_connection(("127.0.0.1", 3128)) as proxy:
        proxy.sendall(request)
        answer = b""
        while more := proxy.recv(65536):
            answer += more
    return answer.partition(b"\\r\\n")[0].decode()

print(ask(b"GET http://1.1.1.1/ HTTP/1.1\\r\\n\\r\\n"))
print(ask(b"GET http://127.0.0.1:%s/ HTTP/1.1\\r\\n\\r\\n" % sys.argv[2].encode()))
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=5)
except OSError as error:
    print(type(error).__name__)
"""


async def test_what_listens_inside_a_namespace_is_served_from_outside() -> None:
    policies = Policies()
    policies.put(network_policy(PUBLIC))
    async with OutsideWorld().running() as world:
        network = NodeNetwork(policies, SystemClock(), resolve=world.resolve, connect=world.connect)
        pod = await network.attach(NetworkRequest(uid="u", namespace="team", name="box", labels=LABELS), nobody_inside)
        ours, theirs = socket.socketpair()
        with socket.create_server(("127.0.0.1", 0)) as host, ours, theirs:
            host.setblocking(False)
            ours.settimeout(30)
            child = subprocess.Popen(
                [sys.executable, "-c", INSIDE, str(theirs.fileno()), str(host.getsockname()[1])],
                pass_fds=[theirs.fileno()], stdout=subprocess.PIPE,
            )  # fmt: skip
            theirs.close()
            _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
            for descriptor in descriptors:
                pod.serve_egress(socket.socket(fileno=descriptor))
            said = (await asyncio.to_thread(child.communicate))[0].decode().split("\n")
            if child.returncode == 77:
                await network.close()
                pytest.skip("this user may not make namespaces")
            with pytest.raises(BlockingIOError):
                host.accept()
        await network.close()
        assert said[:3] == ["HTTP/1.1 200 OK", "HTTP/1.1 403 Forbidden", "ConnectionRefusedError"]
        assert world.dialled == [("1.1.1.1", 80)]
