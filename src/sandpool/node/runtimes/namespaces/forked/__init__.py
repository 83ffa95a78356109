"""What runs in the fork-server and in the processes that it forks: from a request to pid 1 of a confined container.

What may live here: code that imports nothing but the standard library and this folder. It runs as root, or as what a user
namespace takes for root, until a container has given everything up; and it must never hold what one sandbox may not know of
another.
"""
