"""The official Python clients, unmodified."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.node.streaming import Stage, eventually, stage

# The client leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
kubernetes = pytest.importorskip("kubernetes")
T = TypeVar("T")


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        await made.pod()
        yield made


@pytest.fixture
def api(box: Stage) -> Iterator[Any]:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(box.server.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        yield kubernetes.client.CoreV1Api(client)
        client.rest_client.pool_manager.clear()


async def blocking(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


def connect(api: Any, *command: str, **options: Any) -> Any:
    from kubernetes.stream import stream

    chosen = {"stdout": True, "stderr": True, "stdin": False, "tty": False, **options}
    return stream(api.connect_get_namespaced_pod_exec, "box", "default", command=list(command), **chosen)


async def test_output_as_a_string(api: Any) -> None:
    assert await blocking(lambda: connect(api, "sh", "-c", "echo hello")) == "hello\n"


async def test_a_conversation(api: Any) -> None:
    def talk() -> tuple[str, str, int]:
        client = connect(api, "sh", stdin=True, _preload_content=False)
        client.write_stdin("echo out; echo err >&2\n")
        out = client.readline_stdout(timeout=10)
        err = client.readline_stderr(timeout=10)
        client.write_stdin("exit 6\n")
        client.run_forever(timeout=10)
        code = client.returncode
        client.close()
        return out, err, code

    assert await blocking(talk) == ("out", "err", 6)


async def test_much_output(api: Any) -> None:
    def read() -> int:
        client = connect(api, "head", "-c", "5000000", "/dev/zero", _preload_content=False, binary=True)
        client.run_forever(timeout=30)
        size = len(client.read_stdout())
        client.close()
        return size

    assert await blocking(read) == 5_000_000


async def test_port_forward(api: Any) -> None:
    from kubernetes.stream import portforward

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def talk() -> bytes:
        forward = portforward(api.connect_get_namespaced_pod_portforward, "box", "default", ports=str(port))
        sock = forward.socket(port)
        sock.setblocking(True)
        sock.sendall(b"hello\n")
        got = b""
        while data := sock.recv(100):
            got += data
        assert forward.error(port) is None
        forward.close()
        for thread in threading.enumerate():
            if thread.name.startswith("Kubernetes port forward"):
                thread.join()
        return got

    assert await blocking(talk) == b"HELLO\n"
    server.close()


async def test_logs(api: Any, box: Stage) -> None:
    await box.pod("talker", script="echo hello")
    await eventually(lambda: box.node.backend.list_pods() is not None)
    seen = ""
    while not seen:
        seen = await blocking(lambda: api.read_namespaced_pod_log("talker", "default"))
    assert seen == "hello\n"


async def test_asyncio_client(box: Stage) -> None:
    pytest.importorskip("kubernetes_asyncio")
    from kubernetes_asyncio import client
    from kubernetes_asyncio.stream import WsApiClient

    configuration = client.Configuration(
        host=box.server.url,
        api_key={"BearerToken": box.server.token},
        api_key_prefix={"BearerToken": "Bearer"},
        ssl_ca_cert=str(box.server.ca),
    )
    async with WsApiClient(configuration) as connection:
        said = await client.CoreV1Api(connection).connect_get_namespaced_pod_exec(
            "box", "default", command=["sh", "-c", "echo hello"], stdout=True, stderr=True, stdin=False, tty=False
        )
    assert said == "hello\n"
