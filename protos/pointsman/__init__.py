"""Generated stubs and the typed client of pointsman."""
