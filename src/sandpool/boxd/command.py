"""The command line of boxd, and its run until SIGTERM.

As pid 1 of a container it forks: the parent reaps orphans and forwards signals, and boxd runs as its child.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sandpool.boxd.app import App, Settings
from sandpool.boxd.processes.memory import opened
from sandpool.boxd.server import Server

TOKEN = "SANDPOOL_BOXD_TOKEN"  # noqa: S105  # the name of a variable


@dataclass(frozen=True, slots=True)
class Listening:
    host: str
    ports: tuple[int, ...]
    unix: str
    grpc: int | None = None


def main(argv: Sequence[str] | None = None) -> None:
    settings, listening = read(sys.argv[1:] if argv is None else argv)
    become_child_of_init()
    _close_inherited_on_exec()
    try:
        asyncio.run(_serve(settings, listening))
    except OSError as error:
        sys.exit(f"boxd: {error}")


def _close_inherited_on_exec() -> None:
    """Keeps processes that boxd starts from inheriting descriptors that boxd itself inherited beyond stdio."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.set_inheritable(int(name), False)


def read(argv: Sequence[str]) -> tuple[Settings, Listening]:
    parser = argparse.ArgumentParser(
        prog="python -m sandpool.boxd",
        description="Processes, terminals, files and ports of a sandbox, over HTTP and WebSocket.",
        epilog=f"The token that clients must send is read from --token-file or the variable {TOKEN}, never from the "
        "command line, and is not passed on to the processes that boxd starts.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        default=[],
        help="TCP port, may be repeated (default: 8888 without --unix)",
    )
    parser.add_argument(
        "--grpc-port", type=_port, help="also serve process.v1.ProcessService here; needs the extra sandpool[grpc]"
    )
    parser.add_argument("--unix", default="", metavar="PATH", help="unix socket to listen on")
    parser.add_argument(
        "--root", default="/", help="confine files and working directories to this directory (default: /)"
    )
    parser.add_argument("--home", default="", help="where commands start and relative paths begin (default: the root)")
    parser.add_argument("--token-file", default="", metavar="PATH", help="file that holds the token")
    parser.add_argument(
        "--no-token", action="store_true", help="let everybody who reaches the port in; only behind a NetworkPolicy"
    )
    parser.add_argument("--metadata-env-prefix", default="SANDBOX_", help="which variables /v1/metadata shows")
    given = parser.parse_args(argv)
    token = _token(given.token_file)
    ports = tuple(given.port) or ((8888,) if not given.unix else ())
    if (ports or given.grpc_port is not None) and not token and not given.no_token:
        parser.error(f"a TCP port needs a token: set {TOKEN}, pass --token-file, or pass --no-token")
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    patience = _patience(os.environ.get("SANDBOX_EXEC_TIMEOUT_SECONDS", ""))
    home = given.home or os.environ.get("SANDBOX_BASE_DIR", "").strip()
    settings = Settings(given.root, home, token, environment, given.metadata_env_prefix, patience, opened())
    return settings, Listening(given.host, ports, given.unix, given.grpc_port)


def _token(path: str) -> str:
    if not path:
        return os.environ.pop(TOKEN, "").strip()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(4096).strip()
    except OSError as error:
        sys.exit(f"boxd: --token-file {path}: {error.strerror}")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _patience(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 300.0
    return seconds if 0 < seconds < 1e9 else 300.0


async def _serve(settings: Settings, listening: Listening) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = App(settings)
    server = Server(app, settings.token)
    grpc = await _serve_grpc(app, settings.token, listening)
    for listener in _listeners(listening):
        print(f"boxd: listening on {_name(listener)}", file=sys.stderr, flush=True)  # noqa: T201
        server.listen(listener)
    await stop.wait()
    await server.close()
    if grpc is not None:
        await grpc.stop(None)
    if listening.unix:
        os.unlink(listening.unix)


async def _serve_grpc(app: App, token: str, listening: Listening) -> Any:
    if listening.grpc is None:
        return None
    try:
        from sandpool.boxd.compat.grpc_service import serve
    except ImportError:
        sys.exit("boxd: --grpc-port needs grpcio; install sandpool[grpc]")
    server, port = await serve(app.table, token, listening.host, listening.grpc)
    print(f"boxd: gRPC on {listening.host} port {port}", file=sys.stderr, flush=True)  # noqa: T201
    return server


def _listeners(listening: Listening) -> list[socket.socket]:
    found = []
    for port in listening.ports:
        family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
        found.append(socket.create_server((listening.host, port), family=family, backlog=512))
    if listening.unix:
        unix = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            unix.bind(listening.unix)
        finally:
            os.umask(mask)
        unix.listen(512)
        found.append(unix)
    return found


def _name(listener: socket.socket) -> str:
    address = listener.getsockname()
    return address if isinstance(address, str) else f"{address[0]} port {address[1]}"


def become_child_of_init() -> None:
    """As pid 1: forks, and returns in the child. The parent forwards signals, reaps orphans, and exits with the child's exit code."""
    if os.getpid() != 1:
        return
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: _pass_on(child, received))
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            os._exit(1)
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _pass_on(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        pass
