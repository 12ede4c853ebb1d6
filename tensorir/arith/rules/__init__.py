"""The rule tables, one file an operator family; sums, quotients, minima and comparisons of integers are not here:
they go through the canonical form."""
