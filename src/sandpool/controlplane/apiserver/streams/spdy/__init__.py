"""SPDY/3.1, the server's side, as far as Kubernetes' clients speak it: a pure session and one open connection."""
