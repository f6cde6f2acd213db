"""How requests arrive: HTTP/JSON and gRPC, one handler a method, and the metadata server of emulated machines.

Files, in the order of their imports:

- certificates.py: Certificate authorities of the rehearsal's own, and certificates for localhost and for Google's
  hosts played here.
- tunnels.py: Tunnels to Google's own host names: gRPC clients that are given a proxy reach what is played here at
  those names.
- metadata_server.py: The metadata server that every machine of Google's cloud has: by it, default credentials work
  inside jobs.
- lookups.py: Get and List methods that only look resources up: one handler each for all kinds of resources.
- registry.py: The table of what is played: each service of Google's APIs, and the classes that play its methods.
- dispatch.py: What HTTP and gRPC share: which handler answers a method, who may call it, and what is refused.
- http.py: HTTP/JSON, by the rules of the methods.
- grpc.py: gRPC, by the methods' paths.
- projects_grpc.py: Cloud Resource Manager over gRPC: Vertex AI's SDK asks it for a project, at Google's own host
  name.
"""
