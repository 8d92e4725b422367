"""The typed gRPC service over the same connections."""
