"""Debian's docker-registry on loopback, and pushing images into any registry."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from support.images.files import MadeImage, digest
from support.images.small_registry import PASSWORD, USER

# bcrypt of PASSWORD, as `htpasswd -nbBC 5` writes it: the only form that docker-registry reads
HTPASSWD = USER + ":$2y$05$abcdefghijklmnopqrstuuIRNOPg51z5ET/i9COFSTpAout3SUOMq\n"


@asynccontextmanager
async def real_registry(folder: Path, *, login: str = "", token: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """host:port. `login`: "" or "basic"; `token`: realm, service, issuer and rootcertbundle of a token service."""
    program = shutil.which("docker-registry") or shutil.which("docker-registry", path="/usr/bin:/usr/sbin")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian: apt-get install docker-registry)")
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}", "host": f"http://127.0.0.1:{port}"},
    }
    if login == "basic":
        (folder / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    if token is not None:
        config["auth"] = {"token": dict(token)}
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=log, stderr=log, env={"OTEL_TRACES_EXPORTER": "none"}
        )
    try:
        await _until_it_listens(process, port, folder / "log")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    async with asyncio.timeout(20):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)  # nothing tells when another program listens
            else:
                writer.close()
                await writer.wait_closed()
                return
    raise AssertionError(f"docker-registry did not start: {log.read_text()}")


async def push(address: str, repository: str, tag: str, image: MadeImage, *, authorization: str = "") -> None:
    """Over the same API that every tool uses."""
    headers = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession(headers=headers) as http:
        base = f"http://{address}/v2/{repository}"
        for content in image.blobs.values():
            async with http.post(f"{base}/blobs/uploads/") as started:
                assert started.status == 202, await started.text()
                location = started.headers["Location"]
            url = location if location.startswith("http") else f"http://{address}{location}"
            async with http.put(f"{url}&digest={digest(content)}", data=io.BytesIO(content)) as put:
                assert put.status == 201, await put.text()
        await put_manifest(http, base, tag, image.manifest, image.media_type)


async def put_manifest(http: aiohttp.ClientSession, base: str, tag: str, manifest: bytes, kind: str) -> None:
    async with http.put(f"{base}/manifests/{tag}", data=manifest, headers={"Content-Type": kind}) as put:
        assert put.status == 201, await put.text()


def basic(user: str = USER, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
