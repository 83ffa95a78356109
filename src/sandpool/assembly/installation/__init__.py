"""What is installed on a Kubernetes cluster, as plain objects: permissions, the controller, and what surrounds it. Pure."""
