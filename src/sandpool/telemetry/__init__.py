"""What the program reports about itself: logs, metrics, traces, reconcile history, and the debug pages that show them.

What may live here: recording and showing. Everything above may use it; it decides nothing.
"""
