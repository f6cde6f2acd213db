"""Labelled text: files read as rows, columns found, rows split into train, validation and test, and checked."""
