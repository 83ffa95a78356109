"""Attempts on the network. Every address that is dialled is loopback: were there no wall at all, nothing would leave the machine.

Addresses beyond are only ever asked of the egress proxy, whose resolver and dialler belong to the test.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from support.escape.hostile import Attempt, Targets, add, answered, attempt, every, first

SIOCSIFFLAGS, SIOCSIFADDR, SIOCGIFFLAGS = 0x8914, 0x8916, 0x8913
NEW_LINK, NEW_ADDRESS, NEW_ROUTE, NEW_RULE = 16, 20, 24, 32
ALLOWED = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
PROXY_PATIENCE = 5.0

LOOPBACK = ("127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1",
            "017700000001", "0177.0.0.1", "0", "0.0.0.0", "127.255.255.254", "[::1]", "[::]", "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]")  # fmt: skip
BEYOND = ("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "2852039166", "0xa9fea9fe", "224.0.0.1",
          "255.255.255.255", "[fd00::1]", "[fe80::1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]",
          "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2002:a00:1::]", "[ff02::1]", "own.test", "metadata.test", "mapped.test",
          "private.test", "rebinding.test", "mixed.test")  # fmt: skip


def _talk(family: int, kind: int, address: object, t: Targets) -> str | None:
    with socket.socket(family, kind) as sock:
        sock.settimeout(PROXY_PATIENCE)
        sock.connect(address)  # type: ignore[arg-type]
        sock.sendall(b"hello\n")
        return f"reached {address!r}" if t.found(sock.recv(4096)) else None


@attempt()
def listener_on_loopback(t: Targets) -> str | None:
    hosts = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "127.1.2.3")
    return first(lambda host=host: _talk(socket.AF_INET, socket.SOCK_STREAM, (host, t["port"]), t) for host in hosts)


@attempt()
def listener_on_loopback_of_ip6(t: Targets) -> str | None:
    hosts = ("::1", "::", "::ffff:127.0.0.1")
    return first(lambda host=host: _talk(socket.AF_INET6, socket.SOCK_STREAM, (host, t["port"]), t) for host in hosts)


@attempt()
def control_plane(t: Targets) -> str | None:
    return _talk(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", t["api_port"]), t)


@attempt()
def datagrams_to_the_machine(t: Targets) -> str | None:
    return _talk(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", t["datagram_port"]), t)


@attempt()
def address_of_another_pod(t: Targets) -> str | None:
    return _talk(socket.AF_INET, socket.SOCK_STREAM, (t["pod_address"], t["pod_port"]), t)


@attempt()
def loopback_of_another_pod(t: Targets) -> str | None:
    return _talk(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", t["pod_port"]), t)


@attempt()
def socket_file_of_the_machine(t: Targets) -> str | None:
    return _talk(socket.AF_UNIX, socket.SOCK_STREAM, t["socket_file"], t)


@attempt()
def nameless_sockets(t: Targets) -> str | None:
    return first(lambda name=name: _talk(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + name, t) for name in t["abstract"])


@attempt()
def connections_of_the_machine(t: Targets) -> str | None:
    with open("/proc/net/tcp") as file:
        return "sees who listens" if f":{t['port']:04X} " in file.read() else None


@attempt()
def interfaces_of_the_machine(t: Targets) -> str | None:
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return ", ".join(names) or None


@attempt(privileged=True)
def raw_packets(t: Targets) -> str | None:
    kinds = {
        "icmp": (socket.AF_INET, 1),
        "tcp": (socket.AF_INET, 6),
        "any": (socket.AF_INET, 255),
        "icmp6": (socket.AF_INET6, 58),
    }
    return every(
        {name: lambda f=f, n=n: socket.socket(f, socket.SOCK_RAW, n).close() for name, (f, n) in kinds.items()}
    )


@attempt(privileged=True)
def packets_of_an_interface(t: Targets) -> str | None:
    kinds = {"raw": socket.SOCK_RAW, "cooked": socket.SOCK_DGRAM}
    return every(
        {name: lambda kind=kind: socket.socket(socket.AF_PACKET, kind, 0).close() for name, kind in kinds.items()}
    )


@attempt(own_kernel=True)
def other_kinds_of_sockets(t: Targets) -> str | None:
    """To the hypervisor, the kernel's cryptography, buses, and whatever else this kernel has."""

    def opened(family: int) -> None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind, 0).close()
                return
            except OSError:
                continue
        raise OSError("not this one")

    return every(
        {str(family): lambda family=family: opened(family) for family in range(1, 46) if family not in ALLOWED}
    )


@attempt(own_kernel=True)
def messages_of_the_kernel(t: Targets) -> str | None:
    """Every netlink but the one that lists addresses."""
    return every({
        str(number): lambda number=number: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, number).close()
        for number in range(1, 23)
    })  # fmt: skip


def _ask_kernel(kind: int) -> str | None:
    """A request too short to mean anything: whoever may not is told so first."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(PROXY_PATIENCE)
        sock.send(struct.pack("=IHHIII", 20, kind, 5, 1, 0, 0))
        answer = sock.recv(4096)
        number = struct.unpack_from("=i", answer, 16)[0]
    if number:
        raise OSError(-number, os.strerror(-number))
    return "done"


for _name, _kind in {"link": NEW_LINK, "address": NEW_ADDRESS, "route": NEW_ROUTE, "rule": NEW_RULE}.items():
    add(Attempt(f"new_{_name}", lambda t, kind=_kind: answered(lambda: _ask_kernel(kind)), True, None, True))


@attempt(privileged=True, own_kernel=True)
def bring_up_an_interface(t: Targets) -> str | None:
    """One that does not exist: whoever may not is told that first."""
    request = struct.pack("16sh22x", b"sandpool-none", 0x41)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return every({"flags": lambda: _device_missing(sock, SIOCSIFFLAGS, request)})


def _device_missing(sock: socket.socket, number: int, request: bytes) -> None:
    try:
        fcntl.ioctl(sock, number, request)
    except OSError as error:
        if error.errno != 19:  # ENODEV
            raise


def _spelled(host: str, port: int) -> tuple[int, object]:
    """As a program without a proxy would: only ever loopback."""
    numeric = "127.0.0.1" if "local" in host.lower() else host.strip("[]")  # no name server is ever asked
    found = socket.getaddrinfo(numeric, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, _, _, _, address = found[0]
    inside = socket.inet_pton(family, address[0])  # type: ignore[arg-type]
    mapped = inside[:12] == b"\0" * 10 + b"\xff\xff"
    four = inside if family == socket.AF_INET else inside[12:] if mapped else b""
    assert four[:1] in (b"\x7f", b"\0") if four else address[0] in ("::1", "::"), address
    return family, address


def _by_proxy(t: Targets, request: str) -> str | None:
    with socket.create_connection(("127.0.0.1", t["proxy_port"]), timeout=PROXY_PATIENCE) as sock:
        sock.sendall(request.encode())
        answer = b""
        while part := sock.recv(4096):
            answer += part
            if b"Connection established" in answer and len(answer) < 200:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return f"{request.splitlines()[0]!r} answered {answer[:60]!r}" if t.found(answer) else None


def _requests(host: str, port: int) -> list[str]:
    return [
        f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n",
        f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n",
    ]


def _named(host: str) -> str:
    return f"proxy_to_{host.strip('[]')}"


def _proxied(host: str) -> None:
    def body(t: Targets) -> str | None:
        if t["proxy_port"]:
            return first(lambda text=text: _by_proxy(t, text) for text in _requests(host, t["port"]))
        family, address = _spelled(host, t["port"])
        return _talk(family, socket.SOCK_STREAM, address, t)

    add(Attempt(_named(host), body))


def _beyond(host: str) -> None:
    def body(t: Targets) -> str | None:
        ports = (t["port"], 80, 443, 22)
        tries = [text for port in ports for text in _requests(host, port)]
        return first(lambda text=text: _by_proxy(t, text) for text in tries)

    why = "no packet may leave the machine; a_policy_that_allows_all_lets_through proves that the dialler would answer"
    add(Attempt(_named(host), body, elsewhere=why))


for _host in LOOPBACK:
    _proxied(_host)
for _host in BEYOND:
    _beyond(_host)

TRICKS = {
    "host_header": "GET http://public.test/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    "origin_form": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    "two_hosts": "GET http://public.test/ HTTP/1.1\r\nHost: public.test\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    "user_before_host": "GET http://public.test@127.0.0.1:{port}/ HTTP/1.1\r\nHost: public.test\r\n\r\n",
    "backslash": "GET http://127.0.0.1:{port}\\@public.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n",
    "fragment": "GET http://127.0.0.1:{port}#@public.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n",
    "no_port": "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
    "big_port": "CONNECT 127.0.0.1:{big} HTTP/1.1\r\n\r\n",
    "zone": "CONNECT [::1%lo]:{port} HTTP/1.1\r\n\r\n",
    "escaped": "GET http://127.0.0.1%3a{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "wide_digits": "GET http://\uff11\uff12\uff17.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "null": "CONNECT public.test\0.127.0.0.1:{port} HTTP/1.1\r\n\r\n",
    "second_request": "GET http://public.test/ HTTP/1.1\r\nHost: public.test\r\n\r\nGET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
    "smuggled": "POST http://public.test/ HTTP/1.1\r\nHost: public.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    "0\r\n\r\nGET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
    "other_scheme": "GET file:///etc/passwd HTTP/1.1\r\nHost: public.test\r\n\r\n",
    "own_proxy": "CONNECT 127.0.0.1:3128 HTTP/1.1\r\n\r\n",
    "neighbour": "CONNECT {pod_address}:{pod_port} HTTP/1.1\r\n\r\n",
}
for _name, _text in TRICKS.items():

    def _trick(t: Targets, text: str = _text) -> str | None:
        return _by_proxy(t, text.format(**{**t.given, "big": t["port"] + 65536}))

    _why = "there is no proxy without isolation; a_policy_that_allows_all_lets_through proves that the dialler would answer"
    add(Attempt(f"proxy_trick_{_name}", _trick, elsewhere=_why))
