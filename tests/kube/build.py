"""Builds the real programs that tests and benchmarks need: etcd, kube-apiserver, kube-controller-manager, kubectl, helm, runsc
and the controller that we compare ourselves with.

Sources come from the Go module proxy, so a Go toolchain is all it needs. Only what is missing is built, into a cache
outside the repository. Binaries in the folder that KUBEBUILDER_ASSETS names win over anything built here.
Run it as a program (`python tests/kube/build.py`), or import `find` to ask where a binary is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KUBERNETES = "v1.36.3"
STAGING = "v0" + KUBERNETES[2:]  # the version under which Kubernetes publishes its k8s.io/* modules
ETCD = "v3.7.3"
HELM = "v4.3.1"
GVISOR = "v0.0.0-20260905035102-160fafc42237"  # of its branch `go`, the only one that the Go tools can build
AGENT_SANDBOX = "v1.0.3"  # of September 2026. Later ones exist: of v1.0.4 and v1.0.8 the Go module proxy said that they are not available
RIVAL, RIVAL_MODULE = "agent-sandbox-controller", "sigs.k8s.io/agent-sandbox"
KUBE_BINARIES = ("kube-apiserver", "kube-controller-manager", "kubectl")
BINARIES = ("etcd", *KUBE_BINARIES, "helm")
ALL = (*BINARIES, "runsc", RIVAL)  # the last two only by name: without them some tests skip
FROM_PATH = ("kubectl", "helm")  # clients: those of the machine will do
DOWNLOAD_TIMEOUT = 600.0
BUILD_TIMEOUT = 1800.0


class CannotBuild(Exception):
    """What is missing, and what to do about it."""


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "sandpool" / "kube" / f"{KUBERNETES}-etcd-{ETCD}"


def find(name: str, folder: Path | None = None) -> Path | None:
    """The binary of that name: from KUBEBUILDER_ASSETS, else built earlier; kubectl and helm also from PATH."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    given = [Path(assets) / name] if assets else []
    for candidate in (*given, _built(name, folder or cache_folder())):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    on_path = shutil.which(name) if name in FROM_PATH else None
    return Path(on_path) if on_path else None


def _built(name: str, folder: Path) -> Path:
    """The folder is named by the versions of the servers; others have their own in their names."""
    others = {"helm": HELM, "runsc": GVISOR, RIVAL: AGENT_SANDBOX}
    return folder / (f"{name}-{others[name]}" if name in others else name)


def definitions(folder: Path | None = None) -> Path | None:
    """The CustomResourceDefinitions of the controller that we compare ourselves with, of the version that is built here."""
    found = (folder or cache_folder()) / f"agent-sandbox-crds-{AGENT_SANDBOX}"
    return found if found.is_dir() else None


def missing(names: Sequence[str], folder: Path | None = None) -> list[str]:
    return [name for name in names if find(name, folder) is None]


def build(names: Sequence[str], folder: Path) -> None:
    """Builds those of the names that `find` does not know. Each appears in the folder whole or not at all."""
    wanted = missing(names, folder)
    if not wanted:
        return
    if shutil.which("go") is None:
        raise CannotBuild(
            f"{', '.join(wanted)} not found and there is no Go to build them with: install Go 1.26 or newer, "
            f"or set KUBEBUILDER_ASSETS to a folder that holds {', '.join(BINARIES)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / f".src.{os.getpid()}"
    for name in wanted:
        started = time.monotonic()
        say(f"building {name} ...")
        module, package = _source(work, name)
        if name == RIVAL:
            _keep_definitions(folder)
        unfinished = folder / f".{name}.{os.getpid()}"
        go("build", "-trimpath", "-ldflags", _linker_flags(), "-o", str(unfinished), package, cwd=module)
        unfinished.rename(_built(name, folder))
        say(f"built {_built(name, folder)} in {time.monotonic() - started:.0f} s")
    shutil.rmtree(work, ignore_errors=True)


def _source(work: Path, name: str) -> tuple[Path, str]:
    """The module to build in, and the package to build."""
    match name:
        case "etcd":
            return _etcd_module(work)
        case "helm":
            return _helm_module(work)
        case "runsc":
            package = "gvisor.dev/gvisor/runsc"
            return module_of(work / "gvisor", "go 1.26", [f"require gvisor.dev/gvisor {GVISOR}"], [package]), package
        case "agent-sandbox-controller":  # RIVAL
            package = f"{RIVAL_MODULE}/cmd/{name}"
            return module_of(work / "other", "go 1.26", [f"require {RIVAL_MODULE} {AGENT_SANDBOX}"], [package]), package
        case _:
            return _kube_module(work, name)


def _keep_definitions(folder: Path) -> None:
    """Before the program: whoever finds the one finds the other."""
    downloaded = json.loads(go("mod", "download", "-json", f"{RIVAL_MODULE}@{AGENT_SANDBOX}"))
    unfinished = folder / f".definitions.{os.getpid()}"
    unfinished.mkdir()
    for file in sorted((Path(downloaded["Dir"]) / "k8s" / "crds").glob("*.yaml")):
        (unfinished / file.name).write_bytes(file.read_bytes())
    kept = folder / f"agent-sandbox-crds-{AGENT_SANDBOX}"
    shutil.rmtree(kept, ignore_errors=True)
    unfinished.rename(kept)


def _helm_module(work: Path) -> tuple[Path, str]:
    module = "helm.sh/helm/v4"
    package = f"{module}/cmd/helm"
    return module_of(work / "helm", "go 1.26", [f"require {module} {HELM}"], [package]), package


def _etcd_module(work: Path) -> tuple[Path, str]:
    package = "go.etcd.io/etcd/server/v3"
    return module_of(work / "etcd", "go 1.26", [f"require {package} {ETCD}"], [package]), package


def _kube_module(work: Path, name: str) -> tuple[Path, str]:
    """A module that depends on k8s.io/kubernetes. Kubernetes resolves its own libraries from folders in its source
    tree, which a dependent module does not see, so each of those is pinned to the published twin."""
    folder = work / "kubernetes"
    packages = [f"k8s.io/kubernetes/cmd/{binary}" for binary in KUBE_BINARIES]
    if not (folder / "go.mod").exists():
        downloaded = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"))
        upstream = json.loads(go("mod", "edit", "-json", downloaded["GoMod"]))
        module_of(folder, f"go {upstream['Go']}", _requirements(upstream), packages)
    return folder, f"k8s.io/kubernetes/cmd/{name}"


def _requirements(upstream: dict[str, Any]) -> list[str]:
    staged = {r["Old"]["Path"] for r in upstream["Replace"] if r["New"]["Path"].startswith("./staging/")}
    lines = [f"require k8s.io/kubernetes {KUBERNETES}"]
    for requirement in upstream["Require"]:
        path = requirement["Path"]
        lines.append(f"require {path} {STAGING if path in staged else requirement['Version']}")
    return lines + [f"replace {path} => {path} {STAGING}" for path in sorted(staged)]


def module_of(folder: Path, go_version: str, lines: Sequence[str], imports: Sequence[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text("\n".join([f"module sandpool.test/{folder.name}", go_version, *lines, ""]))
    wanted = "".join(f'import _ "{path}"\n' for path in imports)
    (folder / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{wanted}")
    return folder


def _linker_flags() -> str:
    """Without the version stamp a server calls itself v0.0.0 and clients warn about the skew."""
    major, minor, _ = KUBERNETES[1:].split(".")
    stamp = "-X k8s.io/component-base/version."
    helm = f"-X helm.sh/helm/v4/internal/version.version={HELM}"
    gvisor = f"-X gvisor.dev/gvisor/runsc/version.version=release-{GVISOR.split('-')[1][:8]}.0"
    return f"-s -w {stamp}gitVersion={KUBERNETES} {stamp}gitMajor={major} {stamp}gitMinor={minor} {helm} {gvisor}"


def go(*arguments: str, cwd: Path | None = None) -> str:
    environment = dict(os.environ, CGO_ENABLED="0", GOFLAGS="-mod=mod -buildvcs=false", GOWORK="off")
    limit = BUILD_TIMEOUT if arguments[0] == "build" else DOWNLOAD_TIMEOUT
    command = ["go", *arguments]
    try:
        # Outside any module `go mod download` works only where no go.mod is in sight.
        done = subprocess.run(
            command,
            cwd=cwd or Path("/"),
            env=environment,
            timeout=limit,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise CannotBuild(
            f"`{' '.join(command)}` did not finish within {limit:.0f} s; run it again to go on"
        ) from expired
    if done.returncode != 0:
        raise CannotBuild(f"`{' '.join(command)}` failed with exit code {done.returncode}; its output is above")
    return done.stdout


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*ALL, []], default=[], help=f"default: {', '.join(BINARIES)}")
    parser.add_argument("--into", type=Path, default=cache_folder(), help="default: %(default)s")
    arguments = parser.parse_args()
    names = arguments.names or BINARIES
    try:
        build(names, arguments.into.absolute())
    except CannotBuild as trouble:
        say(f"error: {trouble}")
        return 1
    for name in names:
        print(find(name, arguments.into))
    return 0


if __name__ == "__main__":
    sys.exit(main())
