"""Why a job failed: its log, the root of its traceback, known causes and what helps.

Files, in the order of their imports:

- tracebacks.py: Python tracebacks reassembled from the lines of a log, and the root cause of chained exceptions.
- causes.py: Causes of failed jobs: rules that recognise them in the output of programs and of Google's services.
- advice.py: Advice on each cause of failure: a sentence and the next command.
- log.py: Diagnosis of a failed job from its log: the replica that failed first, its root exception, and advice.
"""
