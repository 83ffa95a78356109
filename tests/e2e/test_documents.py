"""What the documents tell a reader to type works, typed in that order; what programs in them print is what the comments say."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.controlplane.data_dir import DataDir
from support.images.files import file, write_oci_archive
from support.images.program_image import image_of
from support.product.cluster import Cluster, running_cluster, stop
from support.product.document import ROOT, keeps, promised, script, typed, typed_by
from support.product.nobody import Nobody, nobody

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
TUTORIAL = "docs/tutorial/first-sandbox.md"
GUIDES = ("files-and-processes", "terminals", "lifecycles", "custom-templates")

BEFORE_A_ROLLOUT = """
sandpool up --detach --no-pool
export KUBECONFIG=$SANDPOOL_DATA_DIR/kubeconfig
kubectl apply -f examples/01-pool-and-claim/template.yaml -f examples/01-pool-and-claim/pool.yaml -f - <<END
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: box}
spec: {podTemplate: {spec: {containers: [{name: main, image: host, command: [sleep, infinity]}]}}}
END
kubectl wait --for=condition=Ready sandboxwarmpool/python sandbox/box
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where a document starts a cluster of its own: one that it leaves running is stopped."""
    yield tmp_path
    stop(Cluster(tmp_path / "data"))


@pytest.fixture(scope="module")
def installed() -> Iterator[Nobody]:
    with nobody() as user:
        yield user


@pytest.fixture
def user(installed: Nobody) -> Iterator[Nobody]:
    """Who begins without a cluster, and leaves none behind."""
    yield installed
    if DataDir(installed.data).holder() is not None:
        installed.sandpool("down")
    shutil.rmtree(installed.data, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For guides that begin where one runs."""
    data = tmp_path_factory.mktemp("guides") / "data"
    with running_cluster(data, "--backend", "namespaces", "--pool", "python=3") as cluster:
        yield cluster


@pytest.mark.kubectl
def test_the_readme(home: Path) -> None:
    checkout = home / "checkout"  # where a reader writes files, which ours should not get
    checkout.mkdir()
    (checkout / "examples").symlink_to(ROOT / "examples")
    _as_the_readme_says(typed(script("README.md"), home, cwd=checkout))


@pytest.mark.long
@pytest.mark.ordinary_user
@pytest.mark.kubectl
@root
def test_the_readme_as_an_ordinary_user(user: Nobody) -> None:
    checkout = user.folder("checkout")
    user.copy(ROOT / "examples", checkout / "examples")
    _as_the_readme_says(typed_by(user, script("README.md"), checkout))


def _as_the_readme_says(said: str) -> None:
    assert said.splitlines().count("42") == 3, "by the first program, `sandpool run` and kubectl"
    assert "=== ada spent the most" in said
    assert "30 programs in 30 sandboxes" in said
    assert "decided: ask pool python" in said


def test_the_tutorial_from_python(home: Path) -> None:
    (home / "work").mkdir()
    _as_the_tutorial_says(typed(script(TUTORIAL), home, cwd=home / "work"))


@pytest.mark.long
@pytest.mark.ordinary_user
@root
def test_the_tutorial_from_python_as_an_ordinary_user(user: Nobody) -> None:
    _as_the_tutorial_says(typed_by(user, script(TUTORIAL), user.folder("work")))


def _as_the_tutorial_says(said: str) -> None:
    assert keeps(said, ["42", "from a pipe", *promised(TUTORIAL)]), said
    assert len(promised(TUTORIAL)) >= 5


@pytest.mark.kubectl
def test_the_tutorial_with_kubectl(home: Path) -> None:
    said = typed(script("docs/tutorial/first-claim.md"), home)
    before, after = (
        re.findall(found, said, re.MULTILINE)[-1]
        for found in (r"^claim mine has sandbox (\S+)", r"^mine +(?:True|False) +(\S+)")
    )
    assert before == after, "the claim has its sandbox also after kill -9"
    assert re.search(r"^python +5 +5 ", said, re.MULTILINE)
    assert "Ready after" in said


@pytest.mark.kubectl
@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide(guide: str, cluster: Cluster, tmp_path: Path) -> None:
    page = f"docs/how-to/{guide}.md"
    ready = "sandpool wait pool/python --for=condition=Ready --timeout=60s\nexport KUBECONFIG=$SANDPOOL_DATA_DIR/kubeconfig\n"
    said = typed(ready + script(page), tmp_path, cwd=tmp_path, data=cluster.data_dir)
    assert keeps(said, promised(page)), said


@pytest.mark.kubectl
def test_rolling_out_a_template(home: Path) -> None:
    """And what the template had before it still has."""
    names = "kubectl get sandboxtemplate python -o jsonpath='{range .spec.podTemplate.spec.containers[0].env[*]}{.name} {end}'"
    page = "docs/how-to/roll-out-a-template.md"
    said = typed(f"{BEFORE_A_ROLLOUT}echo before: $({names})\n{script(page)}\necho after: $({names})\n", home)
    before, after = (re.findall(rf"^{when}: (.*)$", said, re.MULTILINE)[0].split() for when in ("before", "after"))
    assert "HOME" in before
    assert after == [*before, "RELEASE"]
    assert "sandbox.agents.x-k8s.io/box condition met" in said
    assert said.count("patched") == 5


def test_images_from_an_archive(home: Path) -> None:
    """The archive is made here, of programs of this machine; no registry may be asked that is not on it."""
    image = image_of(["sh", "sleep", "cat"], file("etc/os-release", "NAME=made-by-the-test\n"))
    write_oci_archive(home / "tool.tar", {"tool:dev": image})
    began = "sandpool up --detach --no-pool --registry localhost:5000\n"
    said = typed(f"{began}{script('docs/how-to/images.md')}\nsandpool image list\n", home, cwd=home).splitlines()
    assert said.count("NAME=made-by-the-test") == 1
    assert sum("docker.io/library/tool:dev" in line for line in said) == 4, (
        "imported, listed, and still here after prune"
    )


def test_backups(home: Path) -> None:
    """What changed after the backup is as it was before."""
    asked = "sandpool get pool tools -o jsonpath='{.spec.replicas}'; echo\n"
    backup, restore, salvage = script("docs/how-to/backups.md").split("\n\n")
    began = "sandpool up --detach --no-pool --backend hollow\nsandpool pool create tools --image host --replicas 3\n"
    change = f"sandpool pool scale tools 1\n{asked}"
    said = typed(f"{began}{backup}\n{change}{restore}\n{asked}{change}{salvage}\n{asked}", home)
    assert re.findall(r"^\d$", said, re.MULTILINE) == ["1", "3", "1", "3"]
    assert said.count("restored from") == 2


def test_past_capacity(home: Path) -> None:
    said = typed(script("docs/how-to/past-capacity.md"), home)
    assert re.search(r"^claims +60 of 60 ready$", said, re.MULTILINE), said


@pytest.mark.long
def test_measuring_which_of_two_is_faster(home: Path) -> None:
    """With fewer and smaller runs. The clusters of the other blocks are examples; tests/integration/load runs their commands."""
    (block,) = re.findall(
        r"^```\n((?:(?!```).)*load compare.*?)^```$", (ROOT / "docs/how-to/measure.md").read_text(), re.M | re.S
    )
    block = block.replace("1 2 3 4 5", "1").replace("burst --fresh", "burst --fresh --claims 5 --pool-size 5")
    assert "1 runs of A, 1 of B" in typed(block, home, cwd=home)


@pytest.mark.root
@pytest.mark.kubectl
def test_many_tenants(home: Path) -> None:
    (home / "examples").symlink_to(ROOT / "examples")
    said = typed(script("docs/how-to/many-tenants.md"), home, cwd=home)
    assert "system:serviceaccount:team-red:default" in said
    assert said.splitlines()[-2:] == ["no", "no"]
    assert (home / "team-red.kubeconfig").stat().st_mode & 0o077 == 0
