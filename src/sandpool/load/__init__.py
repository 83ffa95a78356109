"""Measures any cluster of this API under a load of claims, and compares results (`sandpool load`).

Arrivals, the driver, statistics, reports and scenarios belong here. It knows a cluster only by its API.
"""
