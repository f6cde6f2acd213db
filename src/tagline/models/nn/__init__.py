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
