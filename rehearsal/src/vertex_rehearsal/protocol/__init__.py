"""How requests arrive: HTTP/JSON and gRPC, one handler a method, and the metadata server of emulated machines."""
