"""The gRPC edge: the one place that knows the wire."""
