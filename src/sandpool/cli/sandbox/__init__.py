"""Commands that enter a sandbox through the router: claim, run, exec, shell, cp, logs, port-forward.

Each command is a dataclass of options with `run(…, console)`. Commands that need only the API server belong into `cli.objects`.
"""
