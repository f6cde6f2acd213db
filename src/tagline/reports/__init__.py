"""Reports for programs and people: evaluation and comparison, as JSON, Markdown and HTML."""
