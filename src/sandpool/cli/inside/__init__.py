"""Commands that reach into sandboxes: programs, terminals, files, ports. Each is an options value with `run(…, console)`."""
