"""Creates certificate authorities and TLS certificates for localhost and for the emulated Google hosts."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

DAYS = 365
ROOTS = "roots.pem"
"""The file of root certificates for gRPC clients, so that they trust the emulated Google hosts."""


def ensure_certificates(directory: Path, hosts: Sequence[str] = ("localhost",)) -> tuple[Path, Path, Path]:
    """Return the paths of the authority's certificate, the hosts' certificate and its key; renew expired ones."""
    authority, certificate, key = (directory / name for name in ("ca.pem", "localhost.pem", "localhost.key"))
    if not (authority.exists() and certificate.exists() and key.exists() and _is_valid(certificate)):
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in zip((authority, certificate, key), _generate_certificates(hosts), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
    return authority, certificate, key


def write_trusted_roots(path: Path, authorities: Sequence[Path]) -> None:
    """Write a file with gRPC's usual root certificates and these authorities."""
    configured = os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")
    roots = Path(configured) if configured else files("grpc") / "_cython" / "_credentials" / "roots.pem"
    path.write_bytes(b"\n".join([roots.read_bytes(), *(authority.read_bytes() for authority in authorities)]))


def _is_valid(path: Path) -> bool:
    from cryptography import x509

    left = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc - _utc_now()
    return left > datetime.timedelta(days=1)


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _generate_certificates(names: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _build_name("vertex-rehearsal")
    signing = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    authority = (
        _create_builder(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    hosts: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    if "localhost" in names:
        hosts.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _create_builder(_build_name(names[0]), authority_name, key)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return authority.public_bytes(pem), certificate.public_bytes(pem), private


def _build_name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _create_builder(subject: Any, issuer: Any, key: Any) -> Any:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_utc_now() - datetime.timedelta(days=1))
        .not_valid_after(_utc_now() + datetime.timedelta(days=DAYS))
    )
