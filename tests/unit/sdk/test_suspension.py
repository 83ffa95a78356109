"""Which files of a sandbox survive its suspension."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.install.first_pool import template_body
from sandpool.sdk.suspension import kept_paths, outlook


def box(volumes: list[dict[str, Any]], *mounts: tuple[str, str], templates: tuple[str, ...] = ()) -> dict[str, Any]:
    main = {"name": "main", "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts]}
    return {
        "spec": {
            "podTemplate": {"spec": {"containers": [main], "volumes": volumes}},
            "volumeClaimTemplates": [{"metadata": {"name": name}} for name in templates],
        }
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, ()),
        (box([], ("data", "/data"), templates=("data",)), ("/data",)),
        (box([], ("data", "/b"), ("data", "/a"), templates=("data", "other")), ("/a", "/b")),
        (box([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], ("v", "/data")), ("/data",)),
        (box([{"name": "v", "hostPath": {"path": "/srv"}}], ("v", "/srv")), ("/srv",)),
        (box([{"name": "v", "emptyDir": {}}], ("v", "/workspace")), ()),
        (box([{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}], ("v", "/scratch")), ()),
        (box([{"name": "v", "configMap": {"name": "c"}}], ("v", "/etc/c")), ()),
        (template_body(), ()),
    ],
)
def test_only_persistent_volumes_that_are_mounted(given: dict[str, Any], kept: tuple[str, ...]) -> None:
    assert kept_paths(given) == kept


def test_it_is_said_what_is_lost() -> None:
    assert outlook(template_body()).startswith("no file is kept: the sandbox has no persistent volume")
    said = outlook(box([], ("data", "/data"), templates=("data",)))
    assert said == "files in /data are kept; all other files are lost, and all processes end"
