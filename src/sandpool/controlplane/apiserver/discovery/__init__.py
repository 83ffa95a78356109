"""What is served, told to clients: group by group as ever, or all at once as newer clients ask.

What may live here: documents derived from the routes, made once at start.
"""
