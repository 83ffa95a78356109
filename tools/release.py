"""`make release`: builds the sdist and the wheel into `dist/`, installs the wheel into a clean environment and runs the demo from it.

Nothing is uploaded. How a release is made is in docs/how-to/release.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    _run(
        Path(sys.executable).parent / "uv",
        "build",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        DIST,
    )
    (wheel,) = DIST.glob("*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="sandpool-release-") as made:
        clean = Path(made)
        print("installing the wheel into a clean environment ...", file=sys.stderr)
        venv.create(clean / "venv", with_pip=True)
        python = clean / "venv/bin/python"
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*pip, "--require-hashes", "-r", ROOT / "requirements/runtime.txt")
        _run(*pip, "--no-deps", wheel)
        shutil.copy(ROOT / "examples/demo.py", clean / "demo.py")
        _run(python, "demo.py", cwd=clean)
    print(f"{wheel.relative_to(ROOT)}\n{sdist.relative_to(ROOT)}")
    return 0


def _run(*words: str | Path, cwd: Path = ROOT) -> None:
    subprocess.run([str(word) for word in words], cwd=cwd, check=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} ended with {error.returncode}")
