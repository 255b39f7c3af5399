"""How good are the routing models where it counts: on domains, families and collections that they never saw."""
