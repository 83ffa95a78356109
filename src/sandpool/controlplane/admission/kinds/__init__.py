"""What single kinds demand beyond their schema. One file per kind or family, each a table and, where needed, two functions.

What may live here: rules that need nothing but the object and its previous state. Addresses, quotas and anything else that
depends on other objects do not.
"""
