"""Texts a second of the transformers pipeline: one by one, over a list, or in batches; loading does not count."""

import json
import sys
import time
from functools import partial
from pathlib import Path

import transformers
from transformers import pipeline

transformers.logging.set_verbosity_error()
model, file, how = sys.argv[1:]
with Path(file).open(encoding="utf-8") as lines:
    texts = [json.loads(line)["text"] for line in lines]
classify = partial(pipeline("text-classification", model=model, device="cpu"), truncation=True, max_length=256)
classify(texts[:8])
begun = time.perf_counter()
if how == "loop":
    answers = [classify(text) for text in texts]
elif how == "list":
    answers = classify(texts)
else:
    answers = classify(texts, batch_size=int(how))
seconds = time.perf_counter() - begun
assert len(answers) == len(texts)
print(len(texts) / seconds)
