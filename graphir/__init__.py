"""Graph IR: what is computed. Graphs, front ends, passes, the plan of a run and its executor."""
