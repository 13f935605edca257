#!/usr/bin/env python3
"""Makes the sealed records that sealed_record_test.cc holds, from docs/transports/sealed.md and the package cryptography alone.

Without arguments it prints them. With the path of that test it compares them with those there, and fails if any differs.
Exit code 77 if the package is missing (Debian: python3-cryptography).
"""
import pathlib
import re
import sys

try:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

EXPORTED = bytes(range(32))
TEXT = b"What the network sees of this is noise."
MESSAGE, END = 0, 1
FROM_ACTIVE, FROM_PASSIVE = 1, 2
CIPHERS = {"Aes256Gcm": (AESGCM, 32), "Aes128Gcm": (AESGCM, 16), "ChaCha20Poly1305": (ChaCha20Poly1305, 32)}


def derived(secret, info, size=32):
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=info).derive(secret)


def records(cipher, direction, context, messages, records_for_a_key):
    """The records of one flow: a pair of kind and text for each."""
    aead, key_bytes = CIPHERS[cipher]
    secret = derived(EXPORTED, b"leat sealed flow" + bytes([direction, context]))
    made = []
    for number, (kind, text) in enumerate(messages):
        if number and number % records_for_a_key == 0:
            secret = derived(secret, b"leat sealed next")
        key = derived(secret, b"leat sealed key", key_bytes)
        iv = derived(secret, b"leat sealed iv", 12)
        count = number.to_bytes(8, "little")
        nonce = bytes(a ^ b for a, b in zip(iv, bytes(4) + count))
        aad = count + len(text).to_bytes(4, "little") + bytes([context, kind, 0, 0])
        made.append(aead(key).encrypt(nonce, text, aad).hex())
    return made


def vectors(cipher):
    text = (MESSAGE, TEXT)
    return [
        *records(cipher, FROM_ACTIVE, 0, [text, text, text], 2),
        *records(cipher, FROM_ACTIVE, 0, [(MESSAGE, b"")], 1 << 24),
        *records(cipher, FROM_PASSIVE, 3, [text], 1 << 24),
        records(cipher, FROM_ACTIVE, 15, [text, (END, b"")], 1)[1],
    ]


def held_by(test):
    """The records in the table kKnownFlows of the test, by cipher."""
    table = re.search(r"kKnownFlows\[\] = \{(.*?)\}\};", test.read_text(), re.S)[1] + "}}"
    return {cipher: re.findall(r'"([0-9a-f]*)"', re.sub(r'"\s*"', "", texts))
            for cipher, texts in re.findall(r"\{SealCipher::k(\w+),\s*\{(.*?)\}\}", table, re.S)}


def main():
    made = {cipher: vectors(cipher) for cipher in CIPHERS}
    if len(sys.argv) < 2:
        for cipher, texts in made.items():
            print(cipher, *texts, sep="\n  ")
        return 0
    held = held_by(pathlib.Path(sys.argv[1]))
    if held == made:
        print(f"{sum(map(len, made.values()))} records of {len(made)} ciphers are the same")
        return 0
    print(f"{sys.argv[1]} holds {held}\nand these are right: {made}", file=sys.stderr)
    return 1


sys.exit(main())
