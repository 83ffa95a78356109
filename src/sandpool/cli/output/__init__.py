"""How objects are shown: tables, JSON, YAML, names, and what a JSONPath finds.

What may live here: plain JSON in, text out. Pure.
"""
