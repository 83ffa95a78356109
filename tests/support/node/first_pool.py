"""What a program sees in a sandbox of the pool that `sandpool up` brings."""

from __future__ import annotations

LOOK = """
import os, pathlib
pathlib.Path("made").write_text("here")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getuid(), os.getgid(), os.getcwd(), os.path.expanduser("~"))
print(int(status["CapBnd"], 16), int(status["NoNewPrivs"]), int(status["Seccomp"]))
"""
SEEN = "1000 1000 /workspace /workspace\n0 1 2\n"
"""User, group, where it begins, its home; then what it could gain."""
