"""Processes that you can list, watch, feed, signal and reattach to.

What may live here: starting and ending programs, their output, and the requests about them. It knows nothing of files.
"""
