"""`python -m vertex_rehearsal`, the same as `vertex-rehearsal`."""

from vertex_rehearsal.cli import main

main()
