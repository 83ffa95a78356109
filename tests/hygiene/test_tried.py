"""What documents and examples show is tried by a test, and what they repeat from the code is as the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRIALS = "".join((ROOT / f"tests/e2e/test_{name}.py").read_text() for name in ("documents", "examples"))

NOT_TYPED = {
    "ARCHITECTURE.md": "its blocks are pictures",
    "CONTRIBUTING.md": "it tells how to run the tests",
    "docs/explanation/gvisor.md": "its block is a part of a template",
    "docs/explanation/life-of-a-claim.md": "its block is a picture",
    "docs/explanation/simulation.md": "tests/simulation runs the command",
    "docs/explanation/network.md": "its addresses are examples; tests/integration/kubectl/test_walls.py runs the flag",
    "docs/how-to/connect.md": "its addresses are examples; tests/unit/sdk knows what is found where",
    "docs/how-to/install-on-kubernetes.md": "it needs a cluster, a registry and a container engine; tests/node installs from archives, tests/deploy reads the rest",
    "docs/how-to/operate-the-controller.md": "it needs controllers on a cluster; tests/kube/product/test_why.py and tests/integration/app/test_pages.py ask the same",
    "docs/how-to/production.md": "its block is a role, with which tests/kube/test_router.py runs; the others need a cluster",
    "docs/how-to/release.md": "its block builds packages, which takes a minute and the package index",
    "docs/how-to/replace-another-controller.md": "it needs another installation; tests/kube/test_takeover.py and test_refusals.py type its commands",
    "docs/how-to/router-on-kubernetes.md": "it needs a cluster; its values of the chart are those with which tests/deploy renders it",
    "docs/reference/local-api.md": "its block is a quota; tests/integration/kubectl/test_quota.py makes such ones",
    "docs/reference/metrics.md": "its block is a query",
    "docs/reference/sdk.md": "its block is the tree of errors",
}
"""Pages with blocks that nobody types as they are, and why."""


def test_pages_with_blocks_are_typed_by_a_test() -> None:
    pages = [path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
    with_blocks = {page for page in pages if "```" in (ROOT / page).read_text()}
    untried = {str(page) for page in with_blocks if str(page) not in TRIALS and f'"{page.stem}"' not in TRIALS}
    assert untried == NOT_TYPED.keys()


def test_blocks_are_fenced() -> None:
    """An indented one would escape the tests that type them."""
    for page in (ROOT / "README.md", *ROOT.glob("docs/tutorial/*.md"), *ROOT.glob("docs/how-to/*.md")):
        outside = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"(?<=\n\n) {4,}\S.*", outside) == [], page


def test_pages_about_kubernetes_use_no_image_that_only_one_machine_has() -> None:
    """`image: host` would be pulled from a public registry there."""
    local = [path for path in ROOT.glob("examples/**/*.yaml") if re.search(r"image: host\b", path.read_text())]
    assert local
    for name in ("install-on-kubernetes", "production", "router-on-kubernetes", "operate-the-controller"):
        page = (ROOT / f"docs/how-to/{name}.md").read_text()
        assert [str(path) for path in local if str(path.relative_to(ROOT)) in page] == [], name


def test_every_example_is_run_by_a_test() -> None:
    examples = [path for path in ROOT.glob("examples/**/*") if path.suffix in (".py", ".sh")]
    assert len(examples) >= 8
    untried = [str(path.relative_to(ROOT / "examples")) for path in examples]
    assert [name for name in untried if name not in TRIALS] == []


def test_the_first_screen_is_the_demo_and_a_program() -> None:
    """Word by word; that it runs is tried with the rest of the page."""
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:35])
    assert re.search(r"^make demo$", screen, re.MULTILINE)
    (program,) = re.findall(r"^```python\n(.*?)^```$", screen, re.MULTILINE | re.DOTALL)
    assert program == (
        "from sandpool import Sandbox\n"
        "\n"
        'with Sandbox.claim("python") as box:\n'
        '    box.files.write("hello.py", "print(6 * 7)")\n'
        '    print(box.run("python3 hello.py").stdout)\n'
    )


def test_generated_pages_are_as_the_code_says() -> None:
    tool = ROOT / "tools" / "reference.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["kinds.md", "sdk.md"])
def test_generated_pages_leave_nothing_unsaid(name: str) -> None:
    """A field or a method without a word about it is of no use to its reader."""
    page = (ROOT / "docs/reference" / name).read_text()
    assert re.findall(r"^\| `\S+` \| [^|]+ \|  \|$", page, re.MULTILINE) == []
    assert re.findall(r"^\*\*`(?!close\()(.*)`\*\*\n\n(?=\*\*|#)", page, re.MULTILINE) == []
