"""The HTTP server of a bundle: protocol, connections, batching, metrics and worker processes. No torch.

Files, in the order of their imports:

- protocol.py: The HTTP bodies: what a request may ask, and the forms in which it is answered.
- batching.py: Requests gathered into batches: a lone one never waits for company, and what is too much is refused
  at once.
- metrics.py: Counters, gauges and histograms that several processes share, in the text form that Prometheus reads.
- log.py: The server's log: lines of JSON on standard error that never hold up or fail a request.
- prefork.py: Processes that share one port and one loaded model: started, replaced and stopped without losing a
  request.
- http.py: HTTP/1.1 over connections that stay open: requests read within bounds of size and time, answered in their
  order.
- app.py: The HTTP server: a bundle's answers over the wire, and a page to try them on. Needs no torch.
"""
