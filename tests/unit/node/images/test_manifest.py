"""Documents of images: what is read, and what is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.errors import NodeError
from sandpool.node.images.image import ImageConfig
from sandpool.node.images.manifest import Index, Manifest, decode_config, decode_manifest, digest_of, verified
from sandpool.node.images.options import ImageLimits, Platform
from support.images.files import CONFIG, GZIP_LAYER, INDEX, MANIFEST, index_of, make_image

LIMITS = ImageLimits()
D = "sha256:" + "a" * 64


def manifest(**changes: Any) -> bytes:
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": D, "size": 5},
        "layers": [{"mediaType": GZIP_LAYER, "digest": D, "size": 7}],
    }
    return json.dumps({**document, **changes}).encode()


def layers(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"mediaType": GZIP_LAYER, "digest": D, "size": 7, **change} for change in changes]


def test_both_dialects() -> None:
    read = decode_manifest(manifest(), "", LIMITS, "x")
    assert isinstance(read, Manifest)
    assert (read.config.digest, read.layers[0].size) == (D, 7)
    docker = "application/vnd.docker."
    other = manifest(
        mediaType=f"{docker}distribution.manifest.v2+json",
        config={"mediaType": f"{docker}container.image.v1+json", "digest": D, "size": 5},
        layers=layers({"mediaType": f"{docker}image.rootfs.diff.tar.gzip"}),
    )
    assert isinstance(decode_manifest(other, "", LIMITS, "x"), Manifest)


def test_an_index_is_told_by_type_or_by_content() -> None:
    content = index_of({"linux/amd64": make_image([]), "linux/arm/v7": make_image([])})
    read = decode_manifest(content, "", LIMITS, "x")
    assert isinstance(read, Index)
    assert [one.platform for one in read.manifests] == [Platform("linux", "amd64"), Platform("linux", "arm", "v7")]
    bare = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
    assert isinstance(decode_manifest(bare, "text/plain", LIMITS, "x"), Index)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"x":' * 100_000, "not JSON"),
        (json.dumps({"schemaVersion": 1, "fsLayers": []}).encode(), "schema 1"),
        (manifest(config={"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": D, "size": 1}), "not a container image"),
        (manifest(config={"digest": "sha256:abc", "size": 1}), "not a sha256 digest"),
        (manifest(config={"digest": f"sha512:{'a' * 128}", "size": 1}), "not a sha256 digest"),
        (manifest(config={"digest": D}), "size"),
        (manifest(layers=layers({"size": -1})), "-1"),
        (manifest(layers=layers({"size": "7"})), "int"),
        (manifest(layers=layers({"digest": D + "/../../x"})), "not a sha256 digest"),
        (manifest(layers=layers({"mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar"})), "unpacked"),
        (manifest(layers=layers({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"})), "unpacked"),
        (manifest(layers=layers(*[{}] * 128)), "128 layers"),
        (manifest(layers=layers({"size": 1 << 60})), "more than"),
        (manifest(layers=7), "layers"),
        (json.dumps({"mediaType": INDEX, "schemaVersion": 2, "manifests": [{"digest": "x", "size": 1}]}).encode(), "digest"),
    ],
)  # fmt: skip
def test_what_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(NodeError, match=why) as caught:
        decode_manifest(content, "", LIMITS, "image x")
    assert caught.value.reason == "ErrImagePull"


def test_what_an_image_says_about_running_it() -> None:
    run = {
        "Entrypoint": ["/a", "b"], "Cmd": None, "Env": ["A=1", "B=", "C=x=y", "A=2"], "WorkingDir": "/w", "User": "u:g",
        "StopSignal": "SIGINT", "Labels": {"x": "y"},
    }  # fmt: skip
    content = json.dumps({"rootfs": {"diff_ids": [D]}, "config": run, "os": "linux", "architecture": "arm64"}).encode()
    read = decode_config(content, 1, "x")
    assert read.run == ImageConfig(("/a", "b"), (), {"A": "2", "B": "", "C": "x=y"}, "/w", "u:g", "SIGINT")
    assert (read.diff_ids, read.platform) == ((D,), Platform("linux", "arm64"))


def test_a_config_may_say_nothing() -> None:
    assert (
        decode_config(b'{"rootfs": {"type": "layers", "diff_ids": null}, "config": null}', 0, "x").run == ImageConfig()
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "rootfs"),
        ({"rootfs": {"diff_ids": []}}, "names 0 layers"),
        ({"rootfs": {"diff_ids": ["x"]}}, "sha256"),
        ({"rootfs": {"diff_ids": ["sha256:../../../../etc"]}}, "sha256"),
        ({"rootfs": {"diff_ids": [D]}, "config": {"Env": ["novalue"]}}, "NAME=value"),
        ({"rootfs": {"diff_ids": [D]}, "config": {"Env": ["=x"]}}, "NAME=value"),
        ({"rootfs": {"diff_ids": [D]}, "config": {"Env": ["A=x\0y"]}}, "NUL byte"),
        ({"rootfs": {"diff_ids": [D]}, "config": {"Cmd": "sh"}}, "array"),
        ({"rootfs": {"diff_ids": [D]}, "config": {"User": 0}}, "str"),
    ],
)
def test_configs_that_are_refused(document: Any, why: str) -> None:
    with pytest.raises(NodeError, match=why):
        decode_config(json.dumps(document).encode(), 1, "x")


def test_digest_and_size_are_compared() -> None:
    assert verified(b"abc", digest_of(b"abc"), 3, "x") == b"abc"
    for digest, size in ((digest_of(b"abd"), 3), (digest_of(b"abc"), 4)):
        with pytest.raises(NodeError, match="its descriptor says"):
            verified(b"abc", digest, size, "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(D),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["schemaVersion", "mediaType", "config", "layers", "manifests", "digest", "size", "rootfs", "diff_ids"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_document_is_read_or_refused(document: Any) -> None:
    content = json.dumps(document).encode()
    for decode in (lambda: decode_manifest(content, "", LIMITS, "x"), lambda: decode_config(content, 1, "x")):
        try:
            decode()
        except NodeError:
            pass
