"""The controllers of the four kinds, one folder each: view, plan, apply, status, controller.

What may live here: what a kind's controller observes, decides and writes, and what these controllers share. Kinds never import each other and see the
cluster only through kube.Api and caches.
"""
