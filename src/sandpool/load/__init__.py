"""Drives any cluster of this API with claims and tells how it went.

What may live here: arrivals, the driver, the measures, the report. It knows a cluster only by its API.
"""
