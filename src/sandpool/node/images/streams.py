"""Reading what was packed: compression told by the first bytes, a digest of what comes out, and an end to what comes out.

Standard library only: this runs in a worker process.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import zlib
from typing import IO

from sandpool.node.images.tar import BadArchive, Readable, TooMuch

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def opened(file: IO[bytes]) -> Readable:
    """The file's content, decompressed if it is compressed."""
    start = file.read(4)
    file.seek(0)
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if start == _ZSTD:
        return _zstd(file)
    return file


def _zstd(file: IO[bytes]) -> Readable:
    try:
        module = importlib.import_module("compression.zstd")  # Python 3.14 and later
    except ImportError:
        raise BadArchive(
            "it is compressed with zstd, which this Python cannot read (3.14 and later can); push it compressed with gzip"
        ) from None
    stream: Readable = module.ZstdFile(file, "rb")
    return stream


class Measured:
    """A stream of which the digest is taken as it is read, and which ends with an error where it gets too long."""

    def __init__(self, stream: Readable, most: int) -> None:
        self._stream = stream
        self._sum = hashlib.sha256()
        self._most = most
        self.size = 0

    def read(self, size: int, /) -> bytes:
        """Whole, or what is left at the end."""
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._piece(size - len(pieces))
            if not piece:
                break
            pieces += piece
        return bytes(pieces)

    def _piece(self, size: int) -> bytes:
        try:
            piece = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadArchive(f"it cannot be decompressed: {error}") from error
        except OSError:
            raise
        except Exception as error:  # of a decompressor that may not be there, so its errors cannot be named
            raise BadArchive(f"it cannot be decompressed: {error}") from error
        self.size += len(piece)
        if self.size > self._most:
            raise TooMuch(f"it holds more than the {self._most} bytes that are left for this image")
        self._sum.update(piece)
        return piece

    def drain(self) -> None:
        """To the very end: what follows an archive counts for its digest too."""
        while self._piece(1 << 20):
            pass

    @property
    def digest(self) -> str:
        return f"sha256:{self._sum.hexdigest()}"
