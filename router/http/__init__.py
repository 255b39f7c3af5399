"""HTTP: the façades that existing clients talk to, beside gRPC and over the same use case."""
