"""Why a job failed: its log, the root of its traceback, known causes and what helps.

Files, in the order of their imports:

- tracebacks.py: Python tracebacks put together again from the lines of a log, and the root of those that came of
  each other.
- causes.py: Causes of failed jobs: how each is told from what programs and Google's services say, and what helps
  against it.
- advice.py: What to do about each cause: a sentence and the next command.
- log.py: Why a job failed: the replica that failed first, the root of its traceback, what helps, and what to run
  next.
"""
