from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from sandpool.base.open_files import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(allow_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize("soft", [64, 512])
def test_as_many_files_as_the_machine_allows(soft: int) -> None:
    said = subprocess.check_output([sys.executable, "-c", SCRIPT.format(soft=soft, hard=512)], text=True)
    assert said.split() == ["512", "512", "512"]
