"""Machinery of controllers and of long-running processes that knows no kinds: queue, cache, reflector, writes, controller, manager, lease,
events, health, serving certificates.

What may live here: what every controller needs and none should write again. Time comes from an injected clock.
"""
