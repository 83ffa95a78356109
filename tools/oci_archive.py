"""Packs directories as an image: an OCI archive that container engines import, made with the standard library only.

    python tools/oci_archive.py OUT.tar NAME DIRECTORY [DIRECTORY ...] [--env A=B] [--entrypoint WORD ...] [--user 65532]

Each directory is a layer, the first one at the bottom. The same directories make the same bytes: entries are sorted, and the only time
written is SOURCE_DATE_EPOCH (0 if unset). Import it with `ctr images import`, `podman load -i` or `skopeo copy oci-archive:…`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image."


class _Hashed:
    """A file that is written through, and the digest of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._sum.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._sum.hexdigest()}"


@dataclass(frozen=True, slots=True)
class Blob:
    digest: str
    size: int
    content: Path | bytes
    diff_id: str = ""  # of a layer: the digest before it was compressed


@dataclass(frozen=True, slots=True)
class Image:
    name: str
    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    user: str = "65532:65532"
    workdir: str = "/"


def moment() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def layer(directory: Path, scratch: Path) -> Blob:
    """A directory as one compressed layer. Owners and modes are kept for a base system (run as root), else they are root's."""
    descriptor, name = tempfile.mkstemp(dir=scratch, suffix=".tar.gz")
    with open(descriptor, "wb") as file:
        packed = _Hashed(file)
        with gzip.GzipFile(filename="", mode="wb", fileobj=cast(IO[bytes], packed), mtime=0, compresslevel=6) as zipped:
            plain = _Hashed(cast(IO[bytes], zipped))
            with tarfile.open(mode="w|", fileobj=cast(IO[bytes], plain), format=tarfile.PAX_FORMAT) as archive:
                for path in _walk(directory):
                    _add(archive, directory, path)
    return Blob(packed.digest, packed.size, Path(name), plain.digest)


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name == "__pycache__":
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _add(archive: tarfile.TarFile, directory: Path, path: Path) -> None:
    entry = archive.gettarinfo(path, str(path.relative_to(directory)))
    if entry is None:  # a socket: an image cannot contain it
        return
    entry.mtime = moment()
    entry.uname = entry.gname = ""
    if os.getuid() != 0:
        entry.uid = entry.gid = 0
    if entry.isreg():
        with path.open("rb") as content:
            archive.addfile(entry, content)
    else:
        archive.addfile(entry)


def blob(document: Any) -> Blob:
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return Blob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)


def described(kind: str, one: Blob) -> dict[str, Any]:
    return {"mediaType": MEDIA + kind, "digest": one.digest, "size": one.size}


def config(image: Image, layers: list[Blob], architecture: str) -> Blob:
    created = datetime.fromtimestamp(moment(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return blob(
        {
            "created": created,
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": image.user,
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *image.env],
                "Entrypoint": list(image.entrypoint),
                "WorkingDir": image.workdir,
            },
            "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
            "history": [{"created": created, "created_by": "tools/oci_archive.py"} for _ in layers],
        }
    )


def pack(target: Path, image: Image, directories: list[Path]) -> str:
    """Writes the archive whole or not at all, and returns the manifest's digest."""
    architecture = MACHINES.get(platform.machine(), platform.machine())
    with tempfile.TemporaryDirectory(prefix="sandpool-image-") as scratch:
        layers = [layer(directory, Path(scratch)) for directory in directories]
        settings = config(image, layers, architecture)
        manifest = blob(
            {
                "schemaVersion": 2,
                "mediaType": f"{MEDIA}manifest.v1+json",
                "config": described("config.v1+json", settings),
                "layers": [described("layer.v1.tar+gzip", one) for one in layers],
            }
        )
        names = {"org.opencontainers.image.ref.name": image.name, "io.containerd.image.name": image.name}
        index = blob(
            {"schemaVersion": 2, "manifests": [{**described("manifest.v1+json", manifest), "annotations": names}]}
        )
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as archive:
            _put(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _put(archive, "index.json", index.content)
            for one in {each.digest: each for each in (manifest, settings, *layers)}.values():
                _put(archive, "blobs/" + one.digest.replace(":", "/"), one.content)
        unfinished.rename(target)
    return manifest.digest


def _put(archive: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = moment(), 0o644
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        entry.size = file.seek(0, io.SEEK_END)
        file.seek(0)
        archive.addfile(entry, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("name", help="for example registry.example.com/sandpool-controller:0.1.0")
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--env", action="append", default=[], help="A=B; again for each")
    parser.add_argument("--entrypoint", action="append", default=[], help="one word; again for each")
    parser.add_argument("--user", default=Image.__dataclass_fields__["user"].default)
    parser.add_argument("--workdir", default="/")
    given = parser.parse_args()
    for directory in given.directories:
        if not directory.is_dir():
            raise SystemExit(f"{directory} is not a directory")
    image = Image(given.name, tuple(given.env), tuple(given.entrypoint), given.user, given.workdir)
    print(pack(given.target, image, given.directories))


if __name__ == "__main__":
    main()
