"""Shared parts of the torch families: devices, tokens, batches, networks, the training loop.

Files, in the order of their imports:

- devices.py: The device and precision that torch computes with, chosen by pure functions from facts about the
  machine.
- workers.py: The workers of a distributed training: the rank of this process, its device, and collective
  operations.
- tokens.py: Texts as sequences of token ids, read with the tokenizers library alone and spooled to disk for
  training.
- batches.py: Batches of sequences of similar length, in a seeded order that does not depend on length.
- weight_averaging.py: Weight averaging: the mean of a network's weights over training, which errs less than the
  last weights.
- loop.py: The training loop of the torch families: batches of similar length in, steps out, with a state that can
  be saved.
- pretrained.py: Pretrained encoders: found by name, on the hub or in a directory, and loaded without running remote
  code.
- recurrent.py: Bidirectional LSTM layers, pooling over their states, and the networks built from them.
- networks.py: An encoder with a classification head: parameter groups, frozen layers and LoRA.
- vocabulary.py: A tokenizer trained on the training texts: subwords for any language, or whole words.
- word_vectors.py: Pretrained word vectors, from a text file as GloVe and word2vec write it or from a NumPy array.
- learner.py: The learner of the torch families: a network, its tokenizer and its device, with training, scoring and
  saving.
"""

import os
from collections.abc import Mapping

SPIN_COUNT = "1000"
"""Rounds that a waiting OpenMP thread spins before it sleeps. libgomp's default of 300,000 takes milliseconds: where
other processes keep cores busy, threads spin through time in which those that they wait for could compute
(benchmarks/busy.py). It does not change a bit of the results; another number of threads would."""


def choose_wait_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return libgomp's settings for passive waiting, unless the user has set any."""
    is_set = "GOMP_SPINCOUNT" in environment or "OMP_WAIT_POLICY" in environment
    return {} if is_set else {"GOMP_SPINCOUNT": SPIN_COUNT}


os.environ.update(choose_wait_settings(os.environ))
# Set here because every module that imports torch is imported after this one, and libgomp reads it when loaded.
