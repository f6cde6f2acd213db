"""The HTTP server of a bundle: protocol, connections, batching, metrics and worker processes. No torch."""
