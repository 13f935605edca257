#include "support/certificates.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace leat::detail {

Certificate make_certificate(const std::string& name, const Certificate* authority,
                             const char* hosts) {
  Certificate made;
  made.key.reset(EVP_EC_gen("P-256"));
  made.x509.reset(X509_new());
  X509* x509 = made.x509.get();
  X509_set_version(x509, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509),
                   static_cast<long>(std::hash<std::string>()(name) >> 34));
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  const Certificate& issuer = authority != nullptr ? *authority : made;
  X509_set_issuer_name(x509, X509_get_subject_name(issuer.x509.get()));
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer.x509.get(), x509, nullptr, nullptr, 0);
  const auto add = [&](int kind, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  };
  add(NID_basic_constraints, authority == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE");
  add(NID_subject_alt_name, hosts);
  EXPECT_GT(X509_sign(x509, issuer.key.get(), EVP_sha256()), 0);
  return made;
}

CertificateFiles write_files(const ScratchFolder& folder, const std::string& name,
                             const Certificate& certificate, const Certificate& authority) {
  CertificateFiles files;
  files.certificate = write_pem(folder, name + ".crt", [&](std::FILE* file) {
    return PEM_write_X509(file, certificate.x509.get());
  });
  files.key = write_pem(folder, name + ".key", [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, certificate.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  files.authority = write_pem(folder, name + ".ca", [&](std::FILE* file) {
    return PEM_write_X509(file, authority.x509.get());
  });
  return files;
}

std::string write_pem(const ScratchFolder& folder, const std::string& name,
                      const std::function<int(std::FILE*)>& write) {
  const std::string path = folder.write(name, "");
  std::FILE* file = std::fopen(path.c_str(), "w");
  EXPECT_EQ(write(file), 1);
  std::fclose(file);
  return path;
}

}  // namespace leat::detail
