"""A signature says who made a bundle, and that it is as they made it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from samples import SUPPORT

import tagline
from bare import run_bare
from tagline.cli import run as run_command
from tagline.errors import BundleError, SpecError
from tagline.prediction.bundle import SIGNATURE, Bundle, Manifest
from tagline.prediction.predictor import Predictor

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import serving

pytestmark = pytest.mark.trains

QUICK = (
    "model.family=linear",
    "model.max_features=200",
    "model.strength=4.0",
    "model.characters=0",
    "training.baseline=false",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tagline.train(SUPPORT / "messages.csv", *QUICK, runs=tmp_path_factory.mktemp("runs")).bundle


@pytest.fixture
def bundle(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "bundle"))


class Keys:
    """A key pair in files: PEM as openssl writes it, or OpenSSH."""

    def __init__(self, directory: Path, name: str, *, ssh: bool = False, password: bytes = b"") -> None:
        key = Ed25519PrivateKey.generate()
        shape = PrivateFormat.OpenSSH if ssh else PrivateFormat.PKCS8
        lock = BestAvailableEncryption(password) if password else NoEncryption()
        self.private, self.public = directory / name, directory / f"{name}.pub"
        self.private.write_bytes(key.private_bytes(Encoding.PEM, shape, lock))
        encoding = (
            (Encoding.OpenSSH, PublicFormat.OpenSSH) if ssh else (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        comment = b" me@example.org\n" if ssh else b""
        self.public.write_bytes(key.public_key().public_bytes(*encoding) + comment)


@pytest.fixture
def mine(tmp_path: Path) -> Keys:
    return Keys(tmp_path, "mine")


@pytest.fixture
def others(tmp_path: Path) -> Keys:
    return Keys(tmp_path, "others")


@pytest.mark.parametrize("ssh", [False, True], ids=["pem", "openssh"])
def test_what_was_signed_is_verified_and_predicts(bundle: Path, tmp_path: Path, ssh: bool) -> None:
    keys = Keys(tmp_path, "key", ssh=ssh)
    assert tagline.sign(bundle, key=keys.private) == str(bundle / SIGNATURE)
    verified = tagline.verify(bundle, key=keys.public)
    assert Predictor.of(verified).predict("Where is my parcel?")
    assert tagline.load(bundle).predict("Where is my parcel?"), "a signature is no file that the manifest lists"


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl here")
def test_openssl_makes_the_keys_and_verifies_the_signature(bundle: Path, tmp_path: Path) -> None:
    for command in ("genpkey -algorithm ed25519 -out key", "pkey -in key -pubout -out key.pub"):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    signature = tagline.sign(bundle, key=tmp_path / "key")
    tagline.verify(bundle, key=tmp_path / "key.pub")
    verify = f"pkeyutl -verify -pubin -inkey key.pub -rawin -in bundle/tagline.json -sigfile {signature}"
    subprocess.run(["openssl", *verify.split()], cwd=tmp_path, check=True, capture_output=True)


def test_a_key_with_a_password_needs_it(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys(tmp_path, "key", password=b"open sesame")
    with pytest.raises(SpecError, match="cannot read the key") as error:
        tagline.sign(bundle, key=keys.private)
    assert "TAGLINE_KEY_PASSWORD" in error.value.hint
    monkeypatch.setenv("TAGLINE_KEY_PASSWORD", "open sesame")
    tagline.sign(bundle, key=keys.private)
    tagline.verify(bundle, key=keys.public)


def test_without_a_signature_a_bundle_is_not_verified(bundle: Path, mine: Keys) -> None:
    with pytest.raises(BundleError, match=f"is not signed: it has no {SIGNATURE}"):
        tagline.verify(bundle, key=mine.public)


def test_the_signature_of_another_key_is_none(bundle: Path, mine: Keys, others: Keys) -> None:
    tagline.sign(bundle, key=others.private)
    with pytest.raises(BundleError, match="is not that of"):
        tagline.verify(bundle, key=mine.public)
    tagline.verify(bundle, key=[mine.public, others.public])


def test_what_changed_after_it_was_signed_is_refused_though_it_is_sealed_anew(bundle: Path, mine: Keys) -> None:
    tagline.sign(bundle, key=mine.private)
    manifest = Manifest.model_validate_json((bundle / "tagline.json").read_text())
    forged = manifest.model_copy(update={"labels": tuple(reversed(manifest.labels))})
    forged = forged.model_copy(update={"sha256": forged.digest()})
    (bundle / "tagline.json").write_text(forged.to_json())
    Bundle.load(bundle)
    with pytest.raises(BundleError, match="is not that of"):
        tagline.verify(bundle, key=mine.public)


def test_a_file_changed_after_signing_is_refused(bundle: Path, mine: Keys) -> None:
    tagline.sign(bundle, key=mine.private)
    (bundle / "vocabulary.json").write_text("[]")
    with pytest.raises(BundleError, match=r"vocabulary\.json has changed"):
        tagline.verify(bundle, key=mine.public)


def test_a_damaged_bundle_is_not_signed(bundle: Path, mine: Keys) -> None:
    (bundle / "vocabulary.json").write_text("[]")
    with pytest.raises(BundleError, match=r"vocabulary\.json has changed"):
        tagline.sign(bundle, key=mine.private)
    assert not (bundle / SIGNATURE).exists()


@pytest.mark.parametrize("content", [b"", b"x" * 63, b"x" * 64, b"x" * 65])
def test_a_damaged_signature_is_none(bundle: Path, mine: Keys, content: bytes) -> None:
    (bundle / SIGNATURE).write_bytes(content)
    with pytest.raises(BundleError, match="is not that of"):
        tagline.verify(bundle, key=mine.public)


def test_keys_in_the_wrong_place_are_said(bundle: Path, mine: Keys, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a public key"):
        tagline.sign(bundle, key=mine.public)
    with pytest.raises(SpecError, match="is a private key"):
        tagline.verify(bundle, key=mine.private)
    with pytest.raises(SpecError, match="there is no key"):
        tagline.verify(bundle, key=tmp_path / "nowhere")
    with pytest.raises(SpecError, match="cannot read the key"):
        tagline.verify(bundle, key=bundle / "config.json")
    with pytest.raises(SpecError, match="cannot read the key"):
        tagline.verify(bundle, key="")
    with pytest.raises(SpecError, match="no key to verify with"):
        tagline.verify(bundle, key=[])


def test_a_key_of_another_kind_is_refused(bundle: Path, tmp_path: Path) -> None:
    key = generate_private_key(SECP256R1())
    (tmp_path / "ec").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SpecError, match="is not an ed25519 key"):
        tagline.sign(bundle, key=tmp_path / "ec")


def test_the_commands_say_it_by_their_exit_code(
    bundle: Path, mine: Keys, others: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["verify", str(bundle), "--key", str(mine.public)]) == 4
    assert run_command(["sign", str(bundle), "--key", str(mine.private), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["signature"] == str(bundle / SIGNATURE)
    assert run_command(["verify", str(bundle), "--key", str(mine.public)]) == 0
    assert run_command(["verify", str(bundle), "--key", str(others.public)]) == 4
    assert run_command(["verify", str(bundle), "--key", str(others.public), "--key", str(mine.public)]) == 0


def test_without_the_package_it_is_said_what_to_install(bundle: Path, mine: Keys) -> None:
    code = """
import sys
from tagline.cli import run
print(run(["verify", sys.argv[1], "--key", sys.argv[2], "--json"]))
"""
    printed = run_bare(code, str(bundle), str(mine.public))
    assert "tagline[sign]" in printed
    assert printed.endswith("5\n")


def test_a_server_that_requires_a_signature_serves_nothing_else(bundle: Path, mine: Keys, others: Keys) -> None:
    required = ("--require-signature", str(mine.public))
    assert run_command(["serve", str(bundle), *required]) == 4
    tagline.sign(bundle, key=mine.private)
    with serving(bundle, *required, "--workers", "1") as server:
        assert server.ask({"instances": ["where is it"]})[0] == 200
        tagline.sign(bundle, key=others.private)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("reload failed")
        assert "is not that of" in server.said()
        assert server.ask({"instances": ["where is it"]})[0] == 200, "the bundle that was verified goes on answering"
        tagline.sign(bundle, key=mine.private)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log('"reloaded"')
        assert server.stop() == 0
