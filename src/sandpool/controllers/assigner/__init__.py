"""Which claim gets which warm member, decided in memory: hints only, because the locks are in the API.

assigner.py is the way in, facts.py what it is told and answers, read.py makes facts of objects. house.py holds what is known of
one pool, in the two collections shelf.py and line.py. Nothing here does I/O, reads a clock or survives a restart.
"""
