"""What the controllers do, in numbers and traces: read off the caches, so that no controller knows of it."""
