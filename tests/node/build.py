"""Builds and fetches what a real node consists of, next to what tests/kube/build.py makes: kubelet, kube-scheduler, containerd with
its shim and ctr, the CNI plugins bridge and host-local, runc, and for images a busybox and a Debian root folder with Python.

Go programs come from the Go module proxy. The rest are Debian's packages, unpacked into the cache and not installed (a runc
on PATH will do: it needs C libraries). Only what is missing is made. Run it (`PYTHONPATH=tests python -m node.build`), or import `find`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kube import build as kube
from kube.build import CannotBuild, say

CONTAINERD = "v2.4.2"
CNI = "v1.9.1"
KUBE_BINARIES = ("kubelet", "kube-scheduler")
_CONTAINERD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins"
GO_BINARIES = {
    "containerd": (_CONTAINERD, CONTAINERD, "cmd/containerd"),
    "containerd-shim-runc-v2": (_CONTAINERD, CONTAINERD, "cmd/containerd-shim-runc-v2"),
    "ctr": (_CONTAINERD, CONTAINERD, "cmd/ctr"),
    "bridge": (_CNI, CNI, "plugins/main/bridge"),
    "host-local": (_CNI, CNI, "plugins/ipam/host-local"),
}
DEBIAN_BINARIES = {"runc": ("runc", "usr/sbin/runc"), "busybox": ("busybox-static", "bin/busybox")}
BINARIES = (*KUBE_BINARIES, *GO_BINARIES, *DEBIAN_BINARIES)
RELEASE, PYTHON = "trixie", "3.13"  # as in deploy/images/controller.Containerfile
UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists", "var/log", "dev")
FETCH_TIMEOUT = 300.0


def cache_folder() -> Path:
    return kube.cache_folder().parents[1] / "node" / f"containerd-{CONTAINERD}-cni-{CNI}"


def find(name: str) -> Path | None:
    if name in KUBE_BINARIES:
        return kube.find(name)
    built = cache_folder() / name
    if os.access(built, os.X_OK):
        return built
    on_path = shutil.which(name) if name == "runc" else None  # a busybox of the machine need not be static
    return Path(on_path) if on_path else None


def debian_root() -> Path:
    """A folder with a small Debian and its Python: what an image's base is where no registry can be reached."""
    return cache_folder() / f"debian-{RELEASE}"


def missing(names: Sequence[str] = BINARIES) -> list[str]:
    return [name for name in names if find(name) is None]


def build(names: Sequence[str] = BINARIES) -> None:
    """Each appears in its folder whole or not at all."""
    wanted = missing(names)
    if any(name not in DEBIAN_BINARIES for name in wanted) and shutil.which("go") is None:
        raise CannotBuild(
            f"{', '.join(wanted)} not found and there is no Go to build them with: install Go 1.26 or newer"
        )
    kube.build([name for name in wanted if name in KUBE_BINARIES], kube.cache_folder())
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".src.", dir=folder) as work:
        for name in wanted:
            if name in KUBE_BINARIES:
                continue
            started = time.monotonic()
            made = _from_go(Path(work), name) if name in GO_BINARIES else _from_debian(Path(work), name)
            made.rename(folder / name)
            say(f"made {folder / name} in {time.monotonic() - started:.0f} s")


def build_root() -> None:
    if debian_root().exists():
        return
    say(f"making {debian_root()} ...")
    with tempfile.TemporaryDirectory(prefix=".src.", dir=cache_folder()) as work:
        tool = _unpacked(Path(work), "debootstrap") / "usr"
        root = Path(work) / "root"
        script = ["sh", str(tool / "sbin/debootstrap"), "--variant=minbase", "--include=python3", RELEASE, str(root)]
        # What it mounts in there must be gone before anything is removed.
        _run("unshare", "--mount", "env", f"DEBOOTSTRAP_DIR={tool / 'share/debootstrap'}", *script)
        for each in UNUSED:
            shutil.rmtree(root / each, ignore_errors=True)
        root.rename(debian_root())


def _from_go(work: Path, name: str) -> Path:
    path, version, folder = GO_BINARIES[name]
    say(f"building {name} ...")
    module = work / path.replace("/", "-")
    if not (module / "go.mod").exists():
        packages = [f"{path}/{each}" for (of, _, each) in GO_BINARIES.values() if of == path]
        kube.module_of(module, "go 1.26", [f"require {path} {version}"], packages)
    made = work / name
    stamp = f"-s -w -X {path}/version.Version={version}"
    kube.go("build", "-trimpath", "-ldflags", stamp, "-o", str(made), f"{path}/{folder}", cwd=module)
    return made


def _from_debian(work: Path, name: str) -> Path:
    package, path = DEBIAN_BINARIES[name]
    return _unpacked(work, package) / path


def _unpacked(work: Path, package: str) -> Path:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotBuild(
            f"no apt-get to fetch the Debian package {package} with; put its program into {cache_folder()}"
        )
    _run("apt-get", "download", "-o", "APT::Sandbox::User=root", package, cwd=work)
    (archive,) = work.glob(f"{package}_*.deb")
    _run("dpkg-deb", "--extract", str(archive), str(work / package))
    return work / package


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, timeout=FETCH_TIMEOUT, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise CannotBuild(
            f"`{' '.join(command)}` failed with exit code {done.returncode}; `apt-get update` may help, "
            f"or install the package {command[-1]}"
        )


def main() -> int:
    try:
        build()
        build_root()
    except CannotBuild as trouble:
        say(f"error: {trouble}")
        return 1
    for name in BINARIES:
        print(find(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
