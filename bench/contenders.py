"""Who is compared on Kubernetes, and how they are called. Apart from the means to run them, which tables do not need."""

from __future__ import annotations

from bench.series import OURS

GO, GO_DEFAULTS, FLOOR = "go", "go-defaults", "floor"
TITLES = {
    OURS: "ours",
    GO: "Go controller, flags that its guide recommends",
    GO_DEFAULTS: "Go controller, flags of its manifests",
    FLOOR: "floor: three writes, no controllers",
}
