"""Derives from the run's token the two sides' keys, and TLS contexts that accept the other side's key alone.

Both sides derive the same two Ed25519 keys from the token, one for the coordinator and one for the machines, and a
self-signed certificate of each. A connection is TLS 1.3: each side proves in the handshake that it holds its key, bound
to the fresh secrets of this handshake, and trusts only the other role's certificate. So a handshake can be neither
replayed nor reflected, and whoever does not hold the token can neither read nor change what follows.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import ssl

from phantora_async.errors import EnvironmentUnusable

SALT = b"phantora-async, servers on several machines"
SCRYPT_N = 1 << 15
"""The cost factor of scrypt. A coordinator shows its certificate to everybody who connects, and who may then try
tokens: each try costs 32 MiB and 0.1 s.
"""
COORDINATOR, MACHINE = "phantora-async coordinator", "phantora-async machine"
VALID_FROM, VALID_UNTIL = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31)
"""The validity of certificates: clocks of machines may be wrong, and a key ends with its run."""


def context_of(token: str, role: str) -> ssl.SSLContext:
    """The TLS context for the connections of this role: COORDINATOR accepts machines, MACHINE connects to a
    coordinator.

    Raises EnvironmentUnusable if `cryptography` is missing.
    """
    secret = secret_of(token)
    other = MACHINE if role == COORDINATOR else COORDINATOR
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role == COORDINATOR else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key says who it is
    context.verify_mode = ssl.CERT_REQUIRED
    if role == COORDINATOR:
        context.num_tickets = 0  # no handshake is shortened by a former one
    certificate, key = _identity(secret, role)
    _load(context, certificate + key)
    trusted, _ = _identity(secret, other)
    context.load_verify_locations(cadata=trusted.decode())
    return context


def secret_of(token: str) -> bytes:
    return hashlib.scrypt(token.encode(errors="surrogateescape"), salt=SALT, n=SCRYPT_N, r=8, p=1, maxmem=1 << 26)


def _identity(secret: bytes, role: str) -> tuple[bytes, bytes]:
    """The certificate and the private key in PEM; they are the same wherever they are made from one secret."""
    try:  # it takes long to import
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise EnvironmentUnusable(
            f"servers on several machines need {error.name}, which is not installed", "pip install cryptography"
        ) from None
    key = Ed25519PrivateKey.from_private_bytes(hmac.digest(secret, role.encode(), "sha256"))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, role)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .sign(key, None)
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return certificate.public_bytes(encoding), key.private_bytes(encoding, form, serialization.NoEncryption())


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Loads the key into the context. `ssl` reads keys from files only: this file is never on a disk."""
    with open(os.memfd_create("identity"), "wb", buffering=0) as file:
        file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
