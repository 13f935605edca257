// Certificates and authorities for tests of TLS, made when they are needed and valid for an hour.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "support/scratch.h"

namespace leat::detail {

struct Certificate {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{nullptr, EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> x509{nullptr, X509_free};
};

// Signed by `authority`, or by itself; made out to `hosts`, a list as OpenSSL reads it.
Certificate make_certificate(const std::string& name, const Certificate* authority,
                             const char* hosts = "IP:127.0.0.1");

// Paths of PEM files, as the settings tls_cert_file, tls_key_file and tls_ca_file want them.
struct CertificateFiles {
  std::string certificate;
  std::string key;
  std::string authority;
};
CertificateFiles write_files(const ScratchFolder& folder, const std::string& name,
                             const Certificate& certificate, const Certificate& authority);

// Returns the path of a file that `write` has written; EXPECTs that it returns 1, as OpenSSL's
// functions do.
std::string write_pem(const ScratchFolder& folder, const std::string& name,
                      const std::function<int(std::FILE*)>& write);

}  // namespace leat::detail
