// The files of the roles of remote attestation. Secrets are readable by their owner only, and files
// are replaced atomically, so that a crash leaves the old or the new one.
#pragma once

#include <string>

#include "trusted/remote/certificates.h"
#include "trusted/remote/controller.h"
#include "trusted/remote/crypto.h"

namespace leat::trusted::remote {

// All throw leat::Error(kInvalidArgument), naming the file, if it is missing, too long or
// malformed; and kSystem if writing fails. They refuse a secret that other users can read.
SecretBytes read_secret_file(const std::string& path);
Bytes read_public_file(const std::string& path);
// On disk when the call returns. `secret`: mode 600.
void write_file(const std::string& path, View bytes, bool secret);

KeyHandle read_private_key(const std::string& path);  // PEM, Ed25519
KeyHandle read_public_key(const std::string& path);
CertificateHandle read_certificate(const std::string& path);
RevocationHandle read_revocations(const std::string& path);

void write_private_key(const std::string& path, EVP_PKEY& key);
void write_public_key(const std::string& path, EVP_PKEY& key);
void write_certificate(const std::string& path, X509& certificate);
void write_revocations(const std::string& path, X509_CRL& revocations);

// A device's memory over reboots. A missing file does not mean a new device: only `ca device` makes
// one.
DeviceRecord read_record(const std::string& path);
void write_record(const std::string& path, const DeviceRecord& record);

}  // namespace leat::trusted::remote
