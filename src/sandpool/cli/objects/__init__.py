"""Commands that work on API objects and need only an API server: get, describe, wait, ls, pool, release, suspend, resume, top.

Each command is a dataclass of options with `run(cluster, console)`. Commands that enter a sandbox belong into `cli.sandbox`.
"""
