"""One HTML file that shows a run: everything is in it, nothing is fetched, no script runs."""
