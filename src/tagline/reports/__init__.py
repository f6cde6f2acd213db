"""Reports for programs and people: evaluation and comparison, as JSON, Markdown and HTML.

Files, in the order of their imports:

- advice.py: The verdict of a report in sentences: how good it is, whether that is good enough, and what to do next.
- report.py: The report: everything that was measured, as data for programs and for the rendered pages.
- markdown.py: Reports as Markdown: the model card of a bundle, and the report for a pull request or a terminal.
- charts.py: Charts as SVG text: lines and points over two axes, with a title and a description for those who cannot
  see them.
- evaluate.py: Evaluation of a bundle on other data.
- compare.py: Comparison of runs on the same test rows: the differences, and their significance.
- html.py: HTML pages: reports, comparisons, the server's pages. None of them loads anything from another host.
"""
