"""Images that the command brings in, and the node that runs pods from them: both have the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandpool.model.kinds import PODS
from sandpool.model.pod import Pod
from support.images.files import MadeImage, file, write_oci_archive
from support.images.program_image import image_of
from support.product.cluster import Cluster, running_cluster, sandpool
from support.product.cluster_watch import became

SHELL = "/bin/sh"


def shell_image(word: str) -> MadeImage:
    """A shell with the libraries that it needs, and a file that tells this image from others."""
    return image_of([SHELL], file("word", word))


def pod(name: str, image: str) -> dict[str, Any]:
    """Ready when it has found the word of its own image, and from then on waits for input that never comes."""
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "stdin": True,
        "command": [
            SHELL,
            "-c",
            "read word < /word || test -n $word; test $word = $0 && : > /found && read forever",
            name,
        ],
        "readinessProbe": {"exec": {"command": [SHELL, "-c", "test -e /found"]}, "periodSeconds": 1},
    }
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [main]}}


def ran(cluster: Cluster, name: str, image: str) -> Pod:
    cluster.request("POST", PODS.path("default"), {"apiVersion": "v1", "kind": "Pod", **pod(name, image)})

    def settled(pods: dict[str, Pod]) -> bool:
        found = pods.get(name)
        return found is not None and (
            found.ready or found.status.phase in ("Succeeded", "Failed") or found.held_up != ""
        )

    return became(cluster.data_dir, PODS, settled)[name]


def test_what_the_command_imports_the_node_runs_and_holds(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    for word in ("before", "beside"):
        write_oci_archive(tmp_path / f"{word}.tar", {f"{word}:1": shell_image(word)})
    sandpool("image", "import", str(tmp_path / "before.tar"), *cluster.flag)
    with running_cluster(cluster.data_dir, "--backend", "namespaces", "--no-pool"):
        sandpool("image", "import", str(tmp_path / "beside.tar"), *cluster.flag)
        for word in ("before", "beside"):
            done = ran(cluster, word, f"{word}:1")
            assert done.ready, done.status
        listed = json.loads(sandpool("image", "list", "-o", "json", *cluster.flag).stdout)
        holders = {one["names"][0]: one["holders"][0].partition(" (")[0] for one in listed}
        assert holders == {f"docker.io/library/{word}:1": f"default/{word}" for word in ("before", "beside")}
        held = sandpool("image", "remove", "before:1", *cluster.flag, check=False)
        assert (held.returncode, "in use by default/before (" in held.stderr) == (1, True), held.stderr
        cluster.request("DELETE", PODS.path("default", "before"))
        became(cluster.data_dir, PODS, lambda pods: "before" not in pods)
        sandpool("image", "remove", "before:1", *cluster.flag)
        assert "ErrImageNeverPull" in ran(cluster, "late", "before:1").held_up
