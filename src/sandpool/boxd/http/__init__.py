"""HTTP/1.1 as far as boxd needs it: heads, bodies that stream both ways, upgrades."""
