"""Machinery of controllers and of long-running processes that knows no kinds: work queue, cache, reflector, writes, controller, manager, lease,
events, health, TLS of our servers.

What may live here: what every controller needs and none should write again. Time comes from an injected clock.
"""
