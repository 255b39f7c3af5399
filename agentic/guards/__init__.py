"""Guards: one failure prevented by each file. A guard is a pure function of state and proposal."""
