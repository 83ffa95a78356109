"""Passes connections on: what kube-proxy would do for the one Service that every pod knows, the API server's.

python -m support.kube.node_service LISTEN_ADDRESS:PORT TARGET_ADDRESS:PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(listen: str, target: str) -> None:
    host, _, port = target.partition(":")

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    address, _, number = listen.partition(":")
    async with await asyncio.start_server(accept, address, int(number)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
