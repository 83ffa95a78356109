"""Images: the archive is one that an engine can read, the controller's tree runs by itself, the Containerfiles keep their rules."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sandpool.version import __version__

ROOT = Path(__file__).parents[2]
CONTAINERFILES = sorted((ROOT / "deploy/images").glob("*.Containerfile"))
_TREE = runpy.run_path(str(ROOT / "tools/controller_tree.py"))
MACHINES: dict[str, str] = _TREE["MACHINES"]
PLATFORMS: tuple[str, ...] = _TREE["PLATFORMS"]
ELF = {"amd64": 62, "arm64": 183}
"""For which processor a binary says that it is."""
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def tool(name: str, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / name), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment}
    )
    assert not check or done.returncode == 0, done.stderr
    return done


class Archive:
    """An OCI archive as an engine reads it: nothing is trusted whose digest and size do not fit."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as archive:
            self.files = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        (described,) = json.loads(self.files["index.json"])["manifests"]
        self.name = described["annotations"]["org.opencontainers.image.ref.name"]
        self.digest = described["digest"]
        self.manifest = self.document(described)
        self.config = self.document(self.manifest["config"])
        self.layers = [self.layer(each) for each in self.manifest["layers"]]
        sums = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in self.layers]
        assert self.config["rootfs"] == {"type": "layers", "diff_ids": sums}

    def blob(self, described: dict[str, Any]) -> bytes:
        content = self.files["blobs/" + described["digest"].replace(":", "/")]
        assert described["size"] == len(content)
        assert described["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        return content

    def document(self, described: dict[str, Any]) -> Any:
        return json.loads(self.blob(described))

    def layer(self, described: dict[str, Any]) -> bytes:
        assert described["mediaType"] == LAYER
        return gzip.decompress(self.blob(described))

    def entries(self, layer: int) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.layers[layer])) as archive:
            return {entry.name: entry for entry in archive}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    base, top = tmp_path / "base", tmp_path / "top"
    (base / "etc").mkdir(parents=True)
    (base / "etc/os-release").write_text("ID=debian\n")
    (base / "lib").symlink_to("usr/lib")
    (top / "opt/x/__pycache__").mkdir(parents=True)
    (top / "opt/x/__pycache__/run.pyc").write_bytes(b"x")
    run = top / "opt/x/run.py"
    run.write_text("print(6 * 7)\n")
    run.chmod(0o755)
    return base, top


def packed(target: Path, *folders: Path, **environment: str) -> Archive:
    flags = ("--env", "PYTHONPATH=/opt/x", "--entrypoint", "python3", "--entrypoint", "/opt/x/run.py")
    done = tool("oci_archive.py", str(target), "example.org/x:1", *map(str, folders), *flags, **environment)  # type: ignore[arg-type]
    archive = Archive(target)
    assert done.stdout.strip() == archive.digest
    return archive


def test_an_archive_holds_what_it_says(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    archive = packed(tmp_path / "image.tar", *folders)
    assert archive.name == "example.org/x:1"
    assert archive.config["os"] == "linux"
    assert archive.config["config"] == {
        "User": "65532:65532",
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONPATH=/opt/x"],
        "Entrypoint": ["python3", "/opt/x/run.py"],
        "WorkingDir": "/",
    }
    base, top = archive.entries(0), archive.entries(1)
    assert list(base) == ["etc", "etc/os-release", "lib"]
    assert base["lib"].issym()
    assert base["lib"].linkname == "usr/lib"
    assert list(top) == ["opt", "opt/x", "opt/x/run.py"]
    assert top["opt/x/run.py"].mode & 0o777 == 0o755
    assert {(entry.uid, entry.gid, entry.mtime) for entry in top.values()} == {(0, 0, 0)}


def test_the_same_folders_make_the_same_bytes(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    packed(tmp_path / "one.tar", *folders)
    os.utime(folders[1] / "opt/x/run.py", (1, 1))
    packed(tmp_path / "two.tar", *folders)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    dated = packed(tmp_path / "dated.tar", *folders, SOURCE_DATE_EPOCH="86400")
    assert dated.config["created"] == "1970-01-02T00:00:00Z"
    assert {entry.mtime for entry in dated.entries(0).values()} == {86400}


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    done = tool("oci_archive.py", str(tmp_path / "image.tar"), "x", str(tmp_path / "none"), check=False)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path / 'none'} is not a directory\n")
    assert not (tmp_path / "image.tar").exists()


def alone(tree: Path, *arguments: str) -> str:
    """The command with the tree's packages and no others, as nobody in particular and with nothing to write to."""
    environment: dict[str, Any] = {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/",
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-S", "-W", "error", "-m", "sandpool", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment, cwd="/")
    return done.stdout


@pytest.mark.kube
@pytest.mark.timeout(600)
def test_the_controllers_tree_runs_by_itself(tmp_path: Path) -> None:
    """Downloads the pinned requirements, so it runs with the tests that build from the network anyway."""
    tree = Path(tool("controller_tree.py", str(tmp_path / "root")).stdout.strip())
    assert tree == tmp_path / "root/opt/sandpool/lib"
    assert alone(tree, "--version") == f"{__version__}\n"
    assert "kind: Deployment" in alone(tree, "install", "--dry-run", "--image", "x")
    assert "--leader-elect" in alone(tree, "controller", "--help")
    # Only pinned packages, and nothing that tells where it was made.
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE))
    for found in tree.glob("*.dist-info"):
        name, _, version = found.name.removesuffix(".dist-info").rpartition("-")
        assert version == {**pins, "sandpool": __version__}[name.replace("_", "-")], name
        assert not (found / "direct_url.json").exists()
    assert not (tree / "bin").exists()
    assert not list(tree.rglob("*.pyc"))
    archive = packed(tmp_path / "controller.tar", tmp_path / "root")
    assert "opt/sandpool/lib/sandpool/__main__.py" in archive.entries(0)
    refused = tool("controller_tree.py", str(tmp_path / "root"), check=False)
    assert "is there already" in refused.stderr


def instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word.upper(), rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_all_images_have_one_base() -> None:
    assert (
        len({rest for path in CONTAINERFILES for word, rest in instructions(path) if word == "ARG" and "=" in rest})
        == 1
    )


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
def test_containerfiles(path: Path) -> None:
    steps = instructions(path)
    words = [word for word, _ in steps]
    assert words.count("FROM") == 2, "several stages: what builds does not ship"
    stages = [rest for word, rest in steps if word == "FROM"]
    assert stages[0].startswith("--platform=${BUILDPLATFORM} ${PYTHON} AS "), "what runs at build time is not emulated"
    assert stages[1] == "${PYTHON}", "one base"
    (pinned,) = (rest for word, rest in steps if word == "ARG" and rest.startswith("PYTHON="))
    assert re.fullmatch(r"PYTHON=docker\.io/library/python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", pinned), pinned
    assert "ADD" not in words
    final = steps[len(words) - 1 - words[::-1].index("FROM") :]
    users = [rest for word, rest in final if word == "USER"]
    assert users, "it would run as root"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), "Kubernetes can tell only from a number that it is not root"
    assert not [rest for word, rest in final if word == "RUN"]
    assert not re.search(r"(?i)password|secret|token", " ".join(rest for _, rest in steps).replace("--no-token", ""))
    for source in (one for word, rest in steps if word == "COPY" and "--from" not in rest for one in rest.split()[:-1]):
        assert source.startswith("dist/") or (ROOT / source).exists(), source


def test_boxd_runs_from_the_files_of_the_sandbox_image(tmp_path: Path) -> None:
    """What is copied is enough, and a file in the workspace cannot pretend to be a module of boxd."""
    (path,) = (path for path in CONTAINERFILES if path.name.startswith("python-sandbox"))
    steps = instructions(path)
    place, workspace = tmp_path / "rootfs", tmp_path / "workspace"
    for sources, target in (_copied(rest) for word, rest in steps if word == "COPY" and "--from" not in rest):
        folder = place / target.removeprefix("/rootfs/")
        for source in sources:
            whole = ROOT / source
            if whole.is_dir():
                shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(whole, folder)
    workspace.mkdir()
    (workspace / "json.py").write_text("raise SystemExit('hijacked')")
    command = json.loads(next(rest for word, rest in reversed(steps) if word == "CMD"))
    moved = {"python3": sys.executable, "8888": "0", "0.0.0.0": "127.0.0.1", "/workspace": str(workspace)}
    command = [moved.get(word, word).replace("/opt/boxd", str(place / "opt/boxd")) for word in command]
    with subprocess.Popen(command, cwd=workspace, stderr=subprocess.PIPE, text=True) as boxd:
        assert boxd.stderr is not None
        said = boxd.stderr.readline()
        try:
            assert said.startswith("boxd: listening on"), said + boxd.stderr.read()
            connection = http.client.HTTPConnection("127.0.0.1", int(said.split()[-1]), timeout=30)
            connection.request("POST", "/execute", json.dumps({"command": "pwd"}))
            assert json.loads(connection.getresponse().read())["stdout"] == f"{workspace}\n"
            connection.close()
        finally:
            boxd.terminate()
    assert boxd.returncode == 0


def _copied(rest: str) -> tuple[list[str], str]:
    *sources, target = rest.split()
    return sources, target


def test_tree_and_containerfile_agree() -> None:
    (path,) = (path for path in CONTAINERFILES if path.name.startswith("controller"))
    text, tree = path.read_text(), (ROOT / "tools/controller_tree.py").read_text()
    place = re.search(r'^PLACE = "(.*)"', tree, re.MULTILINE)
    assert place is not None
    assert f"PYTHONPATH=/{place[1]}" in text
    for flag in ("--no-compile", "--only-binary=:all:", "--require-hashes", "--no-index", "--find-links"):
        assert flag in text
        assert flag in tree
    (version,) = set(re.findall(r"PYTHON=\S+/python:(\d+\.\d+)\.", text)) | set(
        re.findall(r"--python-version (\S+)", text)
    )
    assert version == "3.13"
    for platform in PLATFORMS:
        assert f'--platform "{platform}_$machine"' in text
    for architecture, machine in MACHINES.items():
        assert f"{architecture}) machine={machine} ;;" in text


@pytest.mark.kube
@pytest.mark.timeout(600)
@pytest.mark.parametrize("architecture", MACHINES)
def test_there_is_a_binary_package_of_everything_for_each_machine(architecture: str, tmp_path: Path) -> None:
    """Downloads the pinned requirements, each with the hash that is written down: nothing is compiled in an image."""
    flags = ("--python-version", "3.13", "--architecture", architecture)
    tree = Path(tool("controller_tree.py", str(tmp_path / "root"), *flags).stdout.strip())
    compiled = [path.read_bytes()[18:20] for path in tree.rglob("*.so")]
    assert compiled
    assert {int.from_bytes(machine, "little") for machine in compiled} == {ELF[architecture]}
