"""What must never be (judged at every step, at a cost that does not grow with the world), and what must be in the end."""
