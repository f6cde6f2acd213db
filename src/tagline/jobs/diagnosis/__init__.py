"""Why a job failed: its log, the root of its traceback, known causes and what helps."""
