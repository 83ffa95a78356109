"""The controllers under virtual time: seeded schedules, seeded faults, and invariants that are checked at every write.

What may live here: the simulated world, its actors, faults and judges. The controllers and the control plane in it are the real ones; nothing
outside the simulation may depend on it, except the command that runs it.
"""
