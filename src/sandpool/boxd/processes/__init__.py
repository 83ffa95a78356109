"""Processes as things that one can list, watch, feed, signal and come back to."""
