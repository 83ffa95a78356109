"""Which unit tests a change calls for."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "tools"))
import quick

EXISTS = {
    "tests/unit",
    "tests/unit/node",
    "tests/unit/node/kubelet",
    "tests/unit/node/kubelet/test_plan.py",
    "tests/unit/kube",
    "tests/integration/cli/test_up.py",
}


def test_a_file_is_tested_by_the_nearest_folder_of_its_room() -> None:
    assert quick.tests_of(["src/sandpool/node/kubelet/plan.py"], EXISTS) == ["tests/unit/node/kubelet"]
    assert quick.tests_of(["src/sandpool/node/runtimes/process/runtime.py"], EXISTS) == ["tests/unit/node"]


def test_folders_inside_others_are_not_run_twice() -> None:
    both = ["src/sandpool/node/kubelet/plan.py", "src/sandpool/node/openat.py", "tests/unit/node/kubelet/test_plan.py"]
    assert quick.tests_of(both, EXISTS) == ["tests/unit/node"]


def test_slow_suites_documents_and_removed_files_call_for_nothing() -> None:
    assert (
        quick.tests_of(["tests/integration/cli/test_up.py", "README.md", "tests/unit/kube/test_gone.py"], EXISTS) == []
    )
