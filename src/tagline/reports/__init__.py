"""Reports for programs and people: evaluation and comparison, as JSON, Markdown and HTML.

Files, in the order of their imports:

- advice.py: What a report comes to, in sentences: how good it is, whether that is good enough, and what to do next.
- report.py: The report: everything that was measured, as facts for programs and for the pages made of them.
- markdown.py: Reports as Markdown: the model card that lives in a bundle, and the report for a pull request or a
  terminal.
- charts.py: Charts as SVG text: lines and points over two axes, with a title and a description for those who cannot
  see them.
- evaluate.py: A bundle measured on other data.
- compare.py: Runs compared on the same test rows: how much better one is, and whether chance explains it.
- html.py: Every page that a person sees, as HTML: reports, comparisons, the server's. None asks another computer
  anything.
"""
