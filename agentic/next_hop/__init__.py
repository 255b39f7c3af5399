"""What a second hop must hold: candidates of a step onward, scored by what the sources leave open."""
