"""The contenders on Kubernetes and their titles. Separate from sides.py, which runs them and which tables do not need."""

from __future__ import annotations

from sandpool.load.series import OURS

GO, GO_DEFAULTS, FLOOR = "go", "go-defaults", "floor"
TITLES = {
    OURS: "ours",
    GO: "Go controller, flags recommended by its guide",
    GO_DEFAULTS: "Go controller, flags of its manifests",
    FLOOR: "floor: three writes, no controllers",
}
