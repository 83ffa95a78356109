"""Output formats of objects: tables, JSON, YAML, names, JSONPath.

Pure: plain JSON in, text out.
"""
