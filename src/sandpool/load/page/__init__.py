"""Renders a run as one self-contained HTML file: nothing is fetched, no script runs.

What may live here: pure functions from results to HTML and SVG. It measures nothing and reads no cluster.
"""
