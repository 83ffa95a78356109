"""Our own client against a real `sandpool up`, in event loops that end as soon as it is done."""

from __future__ import annotations

import gc
from pathlib import Path

from sandpool.model.kinds import NAMESPACES
from support.product.cluster import running_cluster
from support.product.cluster_watch import became


def test_a_watch_that_is_left_leaves_no_connection_behind(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", "--backend", "none") as cluster:
        for _ in range(5):
            assert "default" in became(cluster.data_dir, NAMESPACES, lambda found: "default" in found, "")
    gc.collect()  # an unclosed transport would warn here, and a warning is an error
