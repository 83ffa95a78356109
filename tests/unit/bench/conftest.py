"""The package under test is not installed."""

from __future__ import annotations

from support.product import bench_root

__all__ = ["bench_root"]
