"""lightkube, unmodified, against a real `sandpool up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api.manifests import CLAIM
from support.product.cluster import Cluster, running_cluster

lightkube = pytest.importorskip("lightkube")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "data") as cluster:
        yield cluster


async def test_lightkube_creates_watches_patches_and_deletes(cluster: Cluster) -> None:
    from lightkube import ApiError, AsyncClient, KubeConfig, codecs
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    claims = create_namespaced_resource("extensions.agents.x-k8s.io", "v1beta1", "SandboxClaim", "sandboxclaims")
    client = AsyncClient(config=KubeConfig.from_file(str(cluster.data_dir / "kubeconfig")), namespace="default")
    try:
        await client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"a": "1"}))
        patched = await client.patch(ConfigMap, "settings", {"data": {"b": "2"}})
        assert patched.data == {"a": "1", "b": "2"}
        replaced = await client.replace(patched)
        assert replaced.metadata.resourceVersion == patched.metadata.resourceVersion  # type: ignore[union-attr]
        assert [item.metadata.name async for item in client.list(ConfigMap)] == ["settings"]  # type: ignore[union-attr]
        (made,) = codecs.load_all_yaml(CLAIM)
        assert isinstance(made, claims)
        created = await client.create(made)
        async for event, item in client.watch(claims, fields={"metadata.name": "mine"}):
            assert (event, item.metadata.uid) == ("ADDED", created.metadata.uid)  # type: ignore[union-attr]
            break
        await client.delete(claims, "mine")
        with pytest.raises(ApiError) as gone:
            await client.get(claims, "mine")
        assert gone.value.status.code == 404
    finally:
        await client.close()
