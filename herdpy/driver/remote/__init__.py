"""A session of a server: frames over TCP or a gRPC stream, retried where that is safe."""
