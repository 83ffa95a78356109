"""How the model's properties are searched: by examples, never by the clock. A busy machine is not a bug."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
