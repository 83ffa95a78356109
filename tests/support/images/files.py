"""Images for tests, made entry by entry, so that a test can write what no honest tool would."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandpool.node.images.options import this_machine

OCI = "application/vnd.oci.image."
MANIFEST, INDEX, CONFIG = f"{OCI}manifest.v1+json", f"{OCI}index.v1+json", f"{OCI}config.v1+json"
GZIP_LAYER, PLAIN_LAYER = f"{OCI}layer.v1.tar+gzip", f"{OCI}layer.v1.tar"
QUICKLY = 1
"""The level of compression: some tests make hundreds of megabytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    kind: bytes = tarfile.REGTYPE
    content: bytes = b""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: float = 0
    device: tuple[int, int] = (0, 0)
    pax: Mapping[str, str] = field(default_factory=dict)


def file(path: str, content: bytes | str = b"", **more: Any) -> Entry:
    return Entry(path, content=content.encode() if isinstance(content, str) else content, **more)


def folder(path: str, mode: int = 0o755, **more: Any) -> Entry:
    return Entry(path, tarfile.DIRTYPE, mode=mode, **more)


def symlink(path: str, target: str, **more: Any) -> Entry:
    return Entry(path, tarfile.SYMTYPE, link=target, **more)


def hard_link(path: str, target: str, **more: Any) -> Entry:
    return Entry(path, tarfile.LNKTYPE, link=target, **more)


def device(path: str, major: int = 1, minor: int = 3, kind: bytes = tarfile.CHRTYPE) -> Entry:
    return Entry(path, kind, device=(major, minor))


def removed(path: str) -> Entry:
    above, slash, name = path.rpartition("/")
    return Entry(f"{above}{slash}.wh.{name}")


def opaque(path: str) -> Entry:
    return Entry(f"{path}/.wh..wh..opq" if path else ".wh..wh..opq")


def layer(entries: Iterable[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A plain tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.type, info.linkname, info.size = entry.kind, entry.link, len(entry.content)
            info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.uid, entry.gid, entry.mtime
            info.devmajor, info.devminor = entry.device
            info.pax_headers = dict(entry.pax)
            archive.addfile(info, io.BytesIO(entry.content) if entry.content else None)
    return out.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encode(document: Any) -> bytes:
    return json.dumps(document).encode()


@dataclass(slots=True)
class MadeImage:
    """Everything that a registry or an archive holds of one image. Fields may be spoiled on purpose."""

    layers: list[bytes]  # as they are stored
    diff_ids: list[str]
    config: bytes
    manifest: bytes
    media_type: str = MANIFEST
    more: dict[str, bytes] = field(default_factory=dict)  # blobs beyond

    @property
    def digest(self) -> str:
        return digest(self.manifest)

    @property
    def id(self) -> str:
        return digest(self.config)

    @property
    def blobs(self) -> dict[str, bytes]:
        return {digest(blob): blob for blob in (*self.layers, self.config)} | self.more


def make_image(
    *layers: Sequence[Entry] | bytes,
    run: Mapping[str, Any] | None = None,
    packed: bool = True,
    config: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> MadeImage:
    """`config` and `manifest` are fields to change in the documents."""
    plain = [one if isinstance(one, bytes) else layer(one) for one in layers]
    stored = [gzip.compress(one, QUICKLY, mtime=0) if packed else one for one in plain]
    diff_ids = [digest(one) for one in plain]
    machine = this_machine()
    settings = encode(
        {
            "os": "linux",
            "architecture": machine.architecture,
            "config": run or {"Cmd": ["/bin/true"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            **(config or {}),
        }
    )
    kind = GZIP_LAYER if packed else PLAIN_LAYER
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest(settings), "size": len(settings)},
        "layers": [{"mediaType": kind, "digest": digest(one), "size": len(one)} for one in stored],
        **(manifest or {}),
    }
    return MadeImage(stored, diff_ids, settings, encode(document))


def index_of(images: Mapping[str, MadeImage]) -> bytes:
    """An index of images by platform: os/architecture or os/architecture/variant."""
    entries = []
    for platform, image in images.items():
        system, architecture, *variant = platform.split("/")
        told = {"os": system, "architecture": architecture} | ({"variant": variant[0]} if variant else {})
        entries.append({"mediaType": MANIFEST, "digest": image.digest, "size": len(image.manifest), "platform": told})
    return encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})


def write_layout(root: Path, images: Mapping[str, MadeImage]) -> Path:
    """An OCI layout in a folder, by names; an empty name is none."""
    (root / "blobs/sha256").mkdir(parents=True)
    (root / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    manifests = []
    for name, image in images.items():
        told = {"annotations": {"org.opencontainers.image.ref.name": name}} if name else {}
        manifests.append({"mediaType": MANIFEST, "digest": image.digest, "size": len(image.manifest), **told})
        for one, content in {**image.blobs, image.digest: image.manifest}.items():
            (root / "blobs" / one.replace(":", "/")).write_bytes(content)
    (root / "index.json").write_bytes(encode({"schemaVersion": 2, "manifests": manifests}))
    return root


def write_oci_archive(path: Path, images: Mapping[str, MadeImage], *, packed: bool = False) -> Path:
    root = write_layout(path.with_suffix(".layout"), images)
    with tarfile.open(path, "w:gz" if packed else "w") as archive:
        archive.add(root, "./")
    return path


def write_docker_archive(path: Path, images: Mapping[str, MadeImage], *, packed: bool = False) -> Path:
    """As `docker save` wrote it for years: layers plain, in folders of their own."""
    saved = []
    with tarfile.open(path, "w:gz" if packed else "w") as archive:

        def put(name: str, content: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))

        for name, image in images.items():
            names = []
            for number, one in enumerate(image.layers):
                names.append(f"{image.id[7:19]}-{number}/layer.tar")
                put(names[-1], gzip.decompress(one) if one[:2] == b"\x1f\x8b" else one)
            put(f"{image.id[7:]}.json", image.config)
            saved.append({"Config": f"{image.id[7:]}.json", "RepoTags": [name] if name else None, "Layers": names})
        put("manifest.json", encode(saved))
    return path
