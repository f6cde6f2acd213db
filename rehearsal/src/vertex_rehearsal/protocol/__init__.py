"""How requests arrive: HTTP/JSON and gRPC, one handler a method, and the metadata server of emulated machines.

Files, in the order of their imports:

- certificates.py: Creates certificate authorities and TLS certificates for localhost and for the emulated Google
  hosts.
- tunnels.py: HTTP CONNECT tunnels, through which gRPC clients reach the emulated services at Google's host names.
- metadata_server.py: The metadata server of Google Cloud's machines, from which jobs get application default
  credentials.
- lookups.py: Generic handlers of Get and List methods that only look resources up.
- registry.py: The table of emulated methods: each service of Google's APIs and the classes that implement it.
- dispatch.py: Dispatches calls over HTTP and gRPC to their handlers, after authorization and validation.
- http.py: The HTTP server: HTTP/JSON transcoding, authentication and routing to the emulated services.
- grpc.py: The gRPC server: routes calls to handlers and reports errors with their details.
- projects_grpc.py: Cloud Resource Manager over gRPC, which Vertex AI's SDK calls at Google's host name to get a
  project.
"""
