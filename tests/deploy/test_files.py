"""What deploy/ repeats of the code is what the code says, and every value of the chart is explained."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.version import __version__
from support.kube.helm import CHART

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/deploy_files.py"


def test_repeated_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def leaves(values: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for name, value in values.items():
        whole = f"{path}.{name}".lstrip(".")
        found.append(whole)
        if isinstance(value, dict):
            found += leaves(value, whole)
    return found


def test_every_value_is_on_the_page() -> None:
    page = (ROOT / "docs/reference/helm-values.md").read_text()
    told = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    # A value is told itself, or by what it is a part of, or by its parts.
    untold = [
        path
        for path in leaves(values)
        if not any(path == one or path.startswith(f"{one}.") or one.startswith(f"{path}.") for one in told)
    ]
    assert untold == []
    assert told <= set(leaves(values))


def used_values() -> set[str]:
    text = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    return set(re.findall(r"\.Values\.([A-Za-z.]+)", text))


def test_templates_use_only_values_that_exist() -> None:
    known = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert used_values() - known == set()


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yaml", "rules.yaml"])
def test_files_are_used(name: str) -> None:
    templates = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    assert f'"files/{name}"' in templates


def test_the_schema_refuses_what_values_do_not_have() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert schema["properties"]["image"]["additionalProperties"] is False
    assert set(schema["properties"]) == {*yaml.safe_load((CHART / "values.yaml").read_text()), "global"}


def test_the_guide_names_values_that_exist() -> None:
    guide = (ROOT / "docs/how-to/install-on-kubernetes.md").read_text()
    known = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    named = set(re.findall(r"--set '?([A-Za-z.]+)=", guide)) | set(
        re.findall(r"`((?:networkPolicy|metrics|namespace|image|rbac)\.[A-Za-z.]+)[=`]", guide)
    )
    assert len(named) >= 8
    assert named - known == set()
    for path in re.findall(
        r"(?:-f |install sandpool |upgrade sandpool |python )((?:deploy|examples|tools)/[\w./-]+)", guide
    ):
        assert (ROOT / path).exists(), path
