"""What the torch families share: devices, tokens, batches, networks, the training loop.

Files, in the order of their imports:

- devices.py: What torch computes on, and in which precision: chosen by pure functions from facts about the machine.
- workers.py: The workers of one training: which of them this process is, what it computes on, and how they agree.
- tokens.py: Texts as sequences of token ids, read with the tokenizers library alone and kept on disk while a model
  learns.
- batches.py: Batches of similar length, in an order that is seeded and does not favour a length.
- weight_averaging.py: The mean of the weights that a network goes through while it learns: it errs less than the
  last of them.
- loop.py: The training loop of every torch family: batches of similar length in, steps out, its state a plain
  dictionary.
- pretrained.py: Pretrained encoders: found by name, on the hub or in a directory, and loaded without running code
  of theirs.
- recurrent.py: LSTMs that read a text in both directions, what makes one state of all of theirs, and the networks
  made of them.
- networks.py: The torch modules of the families: an encoder with its head, which of its layers learn, and low-rank
  updates.
- vocabulary.py: A tokenizer learned from the training texts: pieces of words for any language, or whole words.
- word_vectors.py: Word vectors that others have learned, from a text file as GloVe and word2vec write it or from a
  NumPy array.
- learner.py: A network that reads tokens, its tokenizer and its seat: what every torch family learns, scores and
  saves with.
"""

import os
from collections.abc import Mapping

SPINS = "1000"
"""How often a thread of torch's on a CPU looks whether the others are done before it sleeps. libgomp's own 300,000 are
some milliseconds: where others keep cores busy, threads spin through the time in which those that they wait for could
compute (benchmarks/busy.py). This changes no bit of what is computed; another number of threads would."""


def waiting_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """How threads are to wait for each other, for libgomp; nothing where somebody has set it."""
    is_set = "GOMP_SPINCOUNT" in environment or "OMP_WAIT_POLICY" in environment
    return {} if is_set else {"GOMP_SPINCOUNT": SPINS}


os.environ.update(waiting_settings(os.environ))
# Here, since every module that imports torch comes after this one: libgomp reads it once, when it is loaded.
