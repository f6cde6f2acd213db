"""The HTTP server of a bundle: protocol, connections, batching, metrics and worker processes. No torch.

Files, in the order of their imports:

- protocol.py: Request and response bodies in the forms that are understood: Vertex AI's, Hugging Face's and
  AutoML's.
- batching.py: Dynamic batching without a delay: a lone request never waits for others, and a full queue refuses at
  once.
- metrics.py: Counters, gauges and histograms that several processes share, in the text form that Prometheus reads.
- log.py: The server's log: JSON lines on standard error, written without blocking or failing a request.
- prefork.py: Processes that share one port and one loaded model: started, replaced and stopped without losing a
  request.
- http.py: HTTP/1.1 with keep-alive and pipelining: requests bounded in size and time, answered in order.
- app.py: The HTTP server: a bundle's answers over the wire, and a page to try them on. Needs no torch.
"""
