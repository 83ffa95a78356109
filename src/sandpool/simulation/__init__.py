"""The controllers under virtual time: seeded schedules, seeded faults, and invariants that are checked at every write."""
