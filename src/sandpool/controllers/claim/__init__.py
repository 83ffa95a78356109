"""Claims: what a cold sandbox is made of, the two patches that hand out a warm one, and what each of their ends means."""
