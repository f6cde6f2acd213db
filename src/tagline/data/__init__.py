"""Labelled text: reading files, choosing columns, splitting rows into train, validation and test, and checks.

Files, in the order of their imports:

- column_profiles.py: Profiles of columns, from their names and sampled values: language, labels, ids, dates and
  measures.
- splits.py: Splitting rows into train, validation and test: seeded, stratified, equal texts kept together.
- texts.py: Texts, single or in pairs, stored in unnamed temporary files and read by the chunk: memory use is
  constant.
- readers/: Readers of labelled text: CSV, JSON lines, Parquet and other formats as rows with their file and line.
- dataset.py: Example, Split, Dataset: labelled texts in fixed splits, with a fingerprint.
- columns.py: Completing a spec from what the user typed: guesses, with reasons, which columns hold the text and the
  labels.
- unlabelled.py: Texts without labels, from any file that the readers support, or from a plain text file with one
  text per line.
- near_duplicates.py: Near duplicates: candidates by MinHash, verified by the Jaccard similarity of their shingles.
- checks.py: Checks of a dataset before training: duplicates, data leakage, label problems, encodings and more.
- language_check.py: Whether texts are English, and a warning if an encoder pretrained on English alone is to read
  others.
- writers.py: Writing rows to files: jsonl, csv, tsv and Parquet, in parts that are joined.
"""
