"""Rules of single kinds that their schemas do not express: defaults, allowed values, and checks across fields.

There is one module per kind, or per group of small ones. Rules see one object and its previous state, never other objects.
"""
