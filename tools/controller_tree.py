"""Makes the files of the controller's image in a directory: the pinned requirements and our wheel, and nothing else.

    python tools/controller_tree.py DIR [--python-version 3.13] [--architecture arm64] [--wheel FILE]

It is what deploy/images/controller.Containerfile puts on top of its base image, made without a container engine. The wheel is
built from this checkout unless one is given. The same inputs make the same files.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = "opt/sandpool/lib"
"""Where the image has it; PYTHONPATH says so."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Of each kind of image, what Python calls it."""
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""Wheels that run on the base image; ordinary ones besides."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input")


def build_wheel(into: Path) -> Path:
    """With the build backend of this environment, which is pinned."""
    _run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into), str(ROOT))
    (wheel,) = into.glob("sandpool-*.whl")
    return wheel


def build_tree(directory: Path, wheel: Path, python_version: str, architecture: str = "") -> Path:
    """Only binary packages: nothing that is downloaded is executed."""
    place = directory / PLACE
    place.mkdir(parents=True)
    install = (*PIP, "install", "--target", str(place), "--no-compile", "--only-binary=:all:", "--no-warn-conflicts")
    pinned = ROOT / "requirements/runtime.txt"
    _run(*install, *target(python_version, architecture), "--no-deps", "--require-hashes", "-r", str(pinned))
    # By name and --find-links, not by path: pip would record the path.
    ours = f"sandpool=={wheel.name.split('-')[1]}"
    _run(*install, "--upgrade", "--no-deps", "--no-index", "--find-links", str(wheel.parent), ours)
    shutil.rmtree(place / "bin", ignore_errors=True)  # scripts that name this machine's interpreter
    return place


def target(python_version: str, architecture: str) -> list[str]:
    """For which Python the packages are; without an architecture, for this machine's."""
    flags = ["--python-version", python_version]
    if architecture:
        flags += ["--implementation", "cp"]
        for platform in PLATFORMS:
            flags += ["--platform", f"{platform}_{MACHINES[architecture]}"]
    return flags


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` failed with exit code {done.returncode}; its output is above")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python-version", default=here, help="of the base image's Python; default: %(default)s")
    parser.add_argument("--architecture", choices=MACHINES, default="", help="of the image; default: this machine's")
    parser.add_argument("--wheel", type=Path, help="default: built from this checkout")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.absolute()
    if (directory / PLACE).exists():
        raise SystemExit(f"{directory / PLACE} is there already; remove it, or name another directory")
    with tempfile.TemporaryDirectory(prefix="sandpool-wheel-") as scratch:
        wheel = arguments.wheel.absolute() if arguments.wheel else build_wheel(Path(scratch))
        print(build_tree(directory, wheel, arguments.python_version, arguments.architecture))


if __name__ == "__main__":
    main()
