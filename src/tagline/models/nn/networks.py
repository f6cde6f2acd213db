"""An encoder with a classification head: parameter groups, frozen layers and LoRA."""

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from tagline.models.nn.loop import ParameterGroup
from tagline.models.nn.pretrained import Pooling
from tagline.models.nn.recurrent import RecurrentHead, seed_layers

HEAD_SCALE = 10.0
"""The learning rate of the head, which starts from random weights, relative to the pretrained layers."""


class Network(nn.Module):
    """An encoder and a head that computes logits from the pooled state, or from the states of all tokens."""

    def __init__(self, encoder: Any, *, head: str, labels: int, pooling: Pooling, seed: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = HEADS[head](encoder.config.hidden_size, labels, seed=seed)
        self.pooling = pooling

    @property
    def output(self) -> nn.Linear:
        """The layer whose outputs are the logits."""
        return cast("nn.Linear", self.head.output if isinstance(self.head, RecurrentHead) else self.head)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Return the logits of a batch."""
        states, mask = self.encoder(**inputs).last_hidden_state, inputs["attention_mask"]
        logits: Tensor
        if isinstance(self.head, RecurrentHead):
            logits = self.head(states, mask)
        elif self.pooling == "first":
            logits = self.head(states[:, 0])
        else:
            mask = mask.unsqueeze(-1).to(states.dtype)
            logits = self.head((states * mask).sum(dim=1) / mask.sum(dim=1))
        return logits


def _create_linear_head(size: int, labels: int, *, seed: int) -> nn.Linear:
    head = nn.Linear(size, labels)
    nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(head.bias)
    return head


def _create_lstm_head(size: int, labels: int, *, seed: int) -> RecurrentHead:
    with seed_layers(seed):
        return RecurrentHead(size, labels, hidden=size // 2)


HEADS = {"linear": _create_linear_head, "lstm": _create_lstm_head}


def as_transformers(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a network's weights under transformers' names for those of the encoder."""
    return {name.removeprefix("encoder."): tensor for name, tensor in weights.items()}


def as_network(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights in transformers' names under the network's own names."""
    return {name if name.startswith("head.") else f"encoder.{name}": tensor for name, tensor in weights.items()}


def group_parameters(network: Network, *, frozen: int, layer_decay: float) -> list[ParameterGroup]:
    """Return the parameters grouped by the learning rate of their layer; layers up to `frozen` are frozen."""
    depths = _measure_depths(network.encoder)
    last = max(depths.values())
    names_by_kind: dict[tuple[float, bool], list[str]] = {}
    for name, parameter in network.named_parameters():
        depth = depths.get(name.removeprefix("encoder."))
        if depth is not None and depth <= frozen:
            parameter.requires_grad_(False)
        if parameter.requires_grad:
            scale = HEAD_SCALE if depth is None else layer_decay ** (last - depth)
            names_by_kind.setdefault((scale, parameter.ndim > 1), []).append(name)
    return [ParameterGroup(names, scale, decays) for (scale, decays), names in names_by_kind.items()]


def _measure_depths(encoder: nn.Module) -> dict[str, int]:
    """Return each parameter's depth: 0 for the embeddings, then the layers; what follows has the depth of the last."""
    layers_name, layers = _find_layers(encoder)
    depths = {}
    for name, _ in encoder.named_parameters():
        if name.startswith(f"{layers_name}."):
            depths[name] = 1 + int(name.removeprefix(f"{layers_name}.").split(".")[0])
        else:
            depths[name] = 0 if "embed" in name else len(layers)
    return depths


def layer_count(encoder: nn.Module) -> int:
    """Return the number of layers that can be frozen; 1 for an encoder that applies one layer many times."""
    return len(_find_layers(encoder)[1])


def _find_layers(encoder: nn.Module) -> tuple[str, nn.ModuleList]:
    lists = [(name, part) for name, part in encoder.named_modules() if isinstance(part, nn.ModuleList)]
    return max(lists, key=lambda item: sum(p.numel() for p in item[1].parameters()))


def with_lora(encoder: nn.Module, *, rank: int, seed: int) -> nn.Module:
    """Return the encoder with LoRA updates beside its linear layers; all else is frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", lora_dropout=0.0)
    with torch.random.fork_rng():  # peft draws the updates from torch's own generator
        torch.manual_seed(seed)
        return get_peft_model(encoder, config)


def make_traceable(network: Network) -> Network:
    """Return a copy with eager attention, whose operations graph optimisers recognise and fuse."""
    copied = copy.deepcopy(network).cpu()
    copied.encoder.set_attn_implementation("eager")
    return copied


def merge_lora(network: Network, weights: dict[str, Tensor]) -> Network:
    """Return a copy of the network with its LoRA updates merged into the layers."""
    merged = copy.deepcopy(network).cpu()
    merged.load_state_dict(weights)
    merged.encoder = merged.encoder.merge_and_unload()
    return merged
