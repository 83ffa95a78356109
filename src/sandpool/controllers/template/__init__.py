"""Templates: the label by which everything refers to one, and the NetworkPolicy around all sandboxes made from it."""
