"""The daemon inside each sandbox: processes, terminals, files, ports.

Only the standard library and wire/ may be imported here, because boxd ships alone into the sandbox. In a container, `python -m
sandpool.boxd` runs it; on one machine it is forked into the sandbox, so that the image needs no Python. Processes inside the sandbox never
get the sandbox's token, and nobody outside gets in without it.
"""
