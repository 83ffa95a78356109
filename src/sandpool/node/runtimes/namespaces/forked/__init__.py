"""Code that runs in the fork server and in the processes that it forks: from a request to pid 1 of a confined container.

What may live here: code that imports only the standard library, this package and node/openat.py. It runs as root, or as root of a user
namespace, until a container has dropped all privileges. It must never hold data of one sandbox that another may not see.
"""
