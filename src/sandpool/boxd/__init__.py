"""The daemon inside each sandbox: processes, terminals, files, ports. Standard library and wire only.

It trusts nobody inside the sandbox with the sandbox's token and nobody outside without it. `python -m sandpool.boxd` runs it
in a container; on one machine it is forked into the sandbox, so that the image needs no Python.
"""
