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
