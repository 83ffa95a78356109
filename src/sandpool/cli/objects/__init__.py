"""Commands about objects: what they need is an API server. Each is an options value with `run(cluster, console)`."""
