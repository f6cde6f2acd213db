"""Every command as a function: the command line parses arguments for it and shows what it returns.

Files, in the order of their imports:

- bundles.py: Bundles as commands take them: by path, by address, or by the run that made them.
- init.py: A spec for a data file, written to a file of its own.
- check.py: Everything that is wrong with a spec, its data and its place, and the price.
- train.py: A training, here or as a job elsewhere, as events; tagline.train is the same to its end, tagline.plan
  its plan.
- evaluate.py: A bundle measured on other data, by the name of the bundle or of its run.
- compare.py: Runs side by side, and whether the difference is real.
- predict.py: Answers of a bundle for texts, or for the rows of a file.
- export.py: A bundle in another runtime, added to it or packed beside it, checked on the test rows of its run.
- serve.py: Serving a bundle over HTTP.
- signatures.py: Bundles signed, and signatures verified, by the name of a bundle or of its run.
- lm.py: A language model of texts without labels, to be shared.
- runs.py: The runs that are here: listed, shown, reported and deleted; the functions of `tagline.runs`.
- jobs.py: The jobs of a place: listed, shown, followed and cancelled; the functions of `tagline.jobs`.
- info.py: Versions, devices, families and places, for a bug report.
"""
