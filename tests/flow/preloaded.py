"""What a training imports, loaded once in the process that others are forked from."""

import peft
import pyarrow.csv
import sklearn.metrics
import torch.distributed
import transformers.models.bert.modeling_bert

import tagline.cli
import tagline.models.encoder
import tagline.models.loop
import tagline.models.networks
import tagline.models.pretrained
import tagline.training

__all__ = ["peft", "pyarrow", "sklearn", "tagline", "torch", "transformers"]
