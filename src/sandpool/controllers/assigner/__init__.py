"""The assigner: decides in memory which claim gets which warm member. Hints only, because the locks are in the API.

What may live here: what claims and pools share. assigner.py is the entry point, facts.py its inputs and answers and how they are read off objects, pool_state.py holds what is
known of one pool, wait_queue.py the claims that wait for it. Nothing here does I/O, reads a clock or survives a restart.
"""
