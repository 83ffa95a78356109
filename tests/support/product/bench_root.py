"""Makes the package `bench` of the repository importable: it is no part of what is installed. Import this before it."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
