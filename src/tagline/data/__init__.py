"""Labelled text: reading files, choosing columns, splitting rows into train, validation and test, and checks.

Files, in the order of their imports:

- column_profiles.py: What the name and the sampled values of a column say about it: language, labels, an id, a date
  or a measure.
- splits.py: Rows dealt into train, validation and test: seeded, stratified, equal texts kept together.
- texts.py: Texts, single or in pairs, kept in files without a name and read by the chunk: memory does not grow with
  them.
- readers/: Files of labelled text read as rows that remember their file and line.
- dataset.py: Example, Split, Dataset: labelled texts in fixed splits, with a fingerprint.
- columns.py: From what the user typed to a complete spec: which columns hold the text and the labels, guessed with
  reasons.
- unlabelled.py: Texts without labels, from any file the readers know, or from one with a text on each line.
- near_duplicates.py: Texts that are nearly the same: found by MinHash among any number of them, then compared word
  by word.
- checks.py: What is wrong with this data, before anyone trains on it.
- language_check.py: Whether texts are English, and what that means for an encoder that has read nothing else.
- writers.py: Rows in files: jsonl, csv, tsv and Parquet, written part by part and joined.
"""
