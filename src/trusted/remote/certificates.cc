#include "trusted/remote/certificates.h"

#include <openssl/asn1.h>
#include <openssl/objects.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <charconv>

#include "base/wire.h"
#include "net/tls_context.h"
#include "trusted/remote/messages.h"

namespace leat::trusted::remote {
namespace {

using ObjectHandle = std::unique_ptr<ASN1_OBJECT, FreeBy<ASN1_OBJECT_free>>;
using OctetsHandle = std::unique_ptr<ASN1_OCTET_STRING, FreeBy<ASN1_OCTET_STRING_free>>;
using ExtensionHandle = std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>>;
using TimeHandle = std::unique_ptr<ASN1_TIME, FreeBy<ASN1_TIME_free>>;
using NumberHandle = std::unique_ptr<ASN1_INTEGER, FreeBy<ASN1_INTEGER_free>>;

constexpr long kDay = 24 * 3600;
constexpr long kAuthorityDays = 20 * 365, kDeviceDays = 10 * 365, kBootDays = 365;
constexpr long kListDays = 90;
constexpr long kClockSkewSeconds = 300;

ObjectHandle claims_object() { return ObjectHandle(OBJ_txt2obj(kBootClaimsOid, 1)); }

// The bytes of an ASN.1 encoder of OpenSSL's.
template <typename Encode>
Bytes der_of(Encode encode) {
  unsigned char* der = nullptr;
  const int bytes = encode(&der);
  if (bytes <= 0) fail_crypto("DER encoding");
  const auto* first = reinterpret_cast<const std::byte*>(der);
  Bytes copy(first, first + bytes);
  OPENSSL_free(der);
  return copy;
}

void add_extension(X509* certificate, const X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, const_cast<X509*>(issuer), certificate, nullptr, nullptr, 0);
  const ExtensionHandle extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (!extension) fail_crypto("X509V3_EXT_conf_nid");
  check_crypto(X509_add_ext(certificate, extension.get(), -1), "X509_add_ext");
}

void set_name(X509_NAME* name, int nid, const std::string& text) {
  check_crypto(
      X509_NAME_add_entry_by_NID(name, nid, MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0),
      "X509_NAME_add_entry_by_NID");
}

// A certificate for `key`, valid from a little before `now`, with a random serial number, unsigned.
CertificateHandle begin(const EVP_PKEY& key, std::time_t now, long days) {
  CertificateHandle certificate(X509_new());
  if (!certificate) fail_crypto("X509_new");
  X509_set_version(certificate.get(), X509_VERSION_3);
  auto serial = random<std::array<std::byte, 16>>();
  serial[0] = (serial[0] & std::byte{0x3f}) | std::byte{0x40};  // positive, of one length
  const std::unique_ptr<BIGNUM, FreeBy<BN_free>> number(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()), serial.size(), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get()));
  std::time_t start = now - kClockSkewSeconds;
  X509_time_adj_ex(X509_getm_notBefore(certificate.get()), 0, 0, &start);
  X509_time_adj_ex(X509_getm_notAfter(certificate.get()), 0, days * kDay, &start);
  // OpenSSL takes the key as not constant, to count a reference.
  check_crypto(X509_set_pubkey(certificate.get(), const_cast<EVP_PKEY*>(&key)), "X509_set_pubkey");
  return certificate;
}

// Says what the certificate may be used for, and signs it with the issuer's key.
void finish(X509* certificate, const X509* issuer, EVP_PKEY& key, const char* constraints,
            const char* usage) {
  check_crypto(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)),
               "X509_set_issuer_name");
  add_extension(certificate, issuer, NID_basic_constraints, constraints);
  add_extension(certificate, issuer, NID_key_usage, usage);
  add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
  if (issuer != certificate)
    add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always");
  if (X509_sign(certificate, &key, nullptr) <= 0) fail_crypto("X509_sign");
}

Bytes encode(const BootClaims& claims) {
  Bytes bytes(kBootClaimsBytes);
  leat::detail::WireWriter writer(bytes);
  writer.bytes(claims.measurement, claims.measurement.size());
  writer.number(claims.firmware_version);
  writer.number(claims.device);
  writer.bytes(claims.boot, claims.boot.size());
  return bytes;
}

BootClaims parse_claims(View bytes) {
  leat::detail::WireReader reader(bytes);
  BootClaims claims;
  const View measurement = reader.bytes(claims.measurement.size());
  std::copy(measurement.begin(), measurement.end(), claims.measurement.begin());
  claims.firmware_version = reader.number<std::uint32_t>();
  claims.device = reader.number<std::uint32_t>();
  const View boot = reader.bytes(claims.boot.size());
  std::copy(boot.begin(), boot.end(), claims.boot.begin());
  return claims;
}

bool valid_at(const X509& certificate, std::time_t now) {
  return X509_cmp_time(X509_get0_notBefore(&certificate), &now) < 0 &&
         X509_cmp_time(X509_get0_notAfter(&certificate), &now) > 0;
}

}  // namespace

Authority make_authority(const std::string& name, std::time_t now) {
  Authority authority;
  authority.key = make_key();
  authority.certificate = begin(*authority.key, now, kAuthorityDays);
  X509* const certificate = authority.certificate.get();
  set_name(X509_get_subject_name(certificate), NID_commonName, name);
  finish(certificate, certificate, *authority.key, "critical,CA:TRUE",
         "critical,keyCertSign,cRLSign");
  return authority;
}

CertificateHandle issue_device(const Authority& authority, std::uint32_t device,
                               const EVP_PKEY& hardware_key, std::time_t now) {
  CertificateHandle certificate = begin(hardware_key, now, kDeviceDays);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  set_name(name, NID_commonName, "leat device " + std::to_string(device));
  set_name(name, NID_serialNumber, std::to_string(device));
  finish(certificate.get(), authority.certificate.get(), *authority.key,
         "critical,CA:TRUE,pathlen:0", "critical,keyCertSign");
  return certificate;
}

RevocationHandle make_revocation_list(const Authority& authority,
                                      const std::vector<const X509*>& revoked, std::time_t now) {
  RevocationHandle list(X509_CRL_new());
  if (!list) fail_crypto("X509_CRL_new");
  X509_CRL_set_version(list.get(), X509_CRL_VERSION_2);
  check_crypto(
      X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(authority.certificate.get())),
      "X509_CRL_set_issuer_name");
  const TimeHandle from(ASN1_TIME_adj(nullptr, now - kClockSkewSeconds, 0, 0));
  const TimeHandle until(ASN1_TIME_adj(nullptr, now, static_cast<int>(kListDays), 0));
  check_crypto(X509_CRL_set1_lastUpdate(list.get(), from.get()), "X509_CRL_set1_lastUpdate");
  check_crypto(X509_CRL_set1_nextUpdate(list.get(), until.get()), "X509_CRL_set1_nextUpdate");
  for (const X509* certificate : revoked) {
    std::unique_ptr<X509_REVOKED, FreeBy<X509_REVOKED_free>> entry(X509_REVOKED_new());
    const NumberHandle serial(ASN1_INTEGER_dup(X509_get0_serialNumber(certificate)));
    check_crypto(X509_REVOKED_set_serialNumber(entry.get(), serial.get()),
                 "X509_REVOKED_set_serialNumber");
    check_crypto(X509_REVOKED_set_revocationDate(entry.get(), from.get()),
                 "X509_REVOKED_set_revocationDate");
    check_crypto(X509_CRL_add0_revoked(list.get(), entry.release()), "X509_CRL_add0_revoked");
  }
  X509_CRL_sort(list.get());
  if (X509_CRL_sign(list.get(), authority.key.get(), nullptr) <= 0) fail_crypto("X509_CRL_sign");
  return list;
}

CertificateHandle issue_boot(EVP_PKEY& hardware_key, const X509& device_certificate,
                             const EVP_PKEY& controller_key, const BootClaims& claims,
                             std::time_t now) {
  CertificateHandle certificate = begin(controller_key, now, kBootDays);
  set_name(X509_get_subject_name(certificate.get()), NID_commonName, "leat controller");
  const Bytes bytes = encode(claims);
  const OctetsHandle inner(ASN1_OCTET_STRING_new());
  const OctetsHandle outer(ASN1_OCTET_STRING_new());
  check_crypto(
      ASN1_OCTET_STRING_set(inner.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                            static_cast<int>(bytes.size())),
      "ASN1_OCTET_STRING_set");
  const Bytes der =
      der_of([&](unsigned char** out) { return i2d_ASN1_OCTET_STRING(inner.get(), out); });
  check_crypto(
      ASN1_OCTET_STRING_set(outer.get(), reinterpret_cast<const unsigned char*>(der.data()),
                            static_cast<int>(der.size())),
      "ASN1_OCTET_STRING_set");
  const ExtensionHandle extension(
      X509_EXTENSION_create_by_OBJ(nullptr, claims_object().get(), 1, outer.get()));
  check_crypto(X509_add_ext(certificate.get(), extension.get(), -1), "X509_add_ext");
  finish(certificate.get(), &device_certificate, hardware_key, "critical,CA:FALSE",
         "critical,digitalSignature");
  return certificate;
}

CertificateHandle make_key_carrier(EVP_PKEY& key, std::time_t now) {
  CertificateHandle certificate = begin(key, now, kBootDays);
  set_name(X509_get_subject_name(certificate.get()), NID_commonName, "leat key");
  finish(certificate.get(), certificate.get(), key, "critical,CA:FALSE",
         "critical,digitalSignature");
  return certificate;
}

Bytes to_der(const X509& certificate) {
  return der_of([&](unsigned char** out) { return i2d_X509(&certificate, out); });
}

CertificateHandle parse_certificate(View der, Refusal refusal) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  const unsigned char* const start = at;
  CertificateHandle certificate;
  if (der.size() <= kMaxCertificateBytes)
    certificate.reset(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  leat::detail::tls_reason();
  if (!certificate || at != start + der.size() || X509_get_version(certificate.get()) != 2 ||
      !same(to_der(*certificate), der))
    throw Refused(refusal, "the certificate is not an X.509 v3 certificate in DER");
  const EVP_PKEY* const key = X509_get0_pubkey(certificate.get());
  leat::detail::tls_reason();
  if (key == nullptr || !is_ed25519(*key) ||
      X509_get_signature_nid(certificate.get()) != NID_ED25519)
    throw Refused(refusal, "the certificate does not use Ed25519");
  return certificate;
}

std::uint32_t device_number(const X509& certificate) {
  const X509_NAME* const name = X509_get_subject_name(&certificate);
  const int place = X509_NAME_get_index_by_NID(name, NID_serialNumber, -1);
  if (place >= 0 && X509_NAME_get_index_by_NID(name, NID_serialNumber, place) < 0) {
    const ASN1_STRING* const text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, place));
    const auto* const first = reinterpret_cast<const char*>(ASN1_STRING_get0_data(text));
    const char* const last = first + ASN1_STRING_length(text);
    std::uint32_t device = 0;
    const auto result = std::from_chars(first, last, device);
    if (result.ec == std::errc() && result.ptr == last && device != 0 && *first != '0')
      return device;
  }
  throw Refused(Refusal::kDeviceChain, "it names no device");
}

DeviceIdentity check_device_certificate(X509& certificate, X509& authority, X509_CRL& revocations,
                                        std::time_t now) {
  const std::unique_ptr<X509_STORE, FreeBy<X509_STORE_free>> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, FreeBy<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  check_crypto(X509_STORE_add_cert(store.get(), &authority), "X509_STORE_add_cert");
  check_crypto(X509_STORE_add_crl(store.get(), &revocations), "X509_STORE_add_crl");
  check_crypto(X509_STORE_CTX_init(context.get(), store.get(), &certificate, nullptr),
               "X509_STORE_CTX_init");
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_CRL_CHECK | X509_V_FLAG_X509_STRICT);
  X509_STORE_CTX_set_time(context.get(), 0, now);
  const int verified = X509_verify_cert(context.get());
  leat::detail::tls_reason();
  if (verified != 1)
    throw Refused(Refusal::kDeviceChain,
                  X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
  if (X509_check_ca(&certificate) != 1 || X509_get_pathlen(&certificate) != 0 ||
      X509_get_key_usage(&certificate) != KU_KEY_CERT_SIGN)
    throw Refused(Refusal::kDeviceChain, "it is not that of a device");
  return {device_number(certificate), KeyHandle(X509_get_pubkey(&certificate))};
}

BootClaims read_claims(const X509& certificate) {
  const ObjectHandle object = claims_object();
  const int place = X509_get_ext_by_OBJ(&certificate, object.get(), -1);
  if (place < 0) throw Refused(Refusal::kMeasurement, "the boot certificate has none");
  if (X509_get_ext_by_OBJ(&certificate, object.get(), place) >= 0)
    throw Refused(Refusal::kMeasurement, "the boot certificate has several");
  X509_EXTENSION* const extension = X509_get_ext(&certificate, place);
  if (X509_EXTENSION_get_critical(extension) != 1)
    throw Refused(Refusal::kMeasurement, "its extension is not critical");
  const ASN1_OCTET_STRING* const outer = X509_EXTENSION_get_data(extension);
  const unsigned char* at = ASN1_STRING_get0_data(outer);
  const unsigned char* const start = at;
  const OctetsHandle inner(d2i_ASN1_OCTET_STRING(nullptr, &at, ASN1_STRING_length(outer)));
  leat::detail::tls_reason();
  if (!inner || at != start + ASN1_STRING_length(outer) ||
      ASN1_STRING_length(inner.get()) != static_cast<int>(kBootClaimsBytes))
    throw Refused(Refusal::kMeasurement, "its extension is not of its form");
  return parse_claims(
      {reinterpret_cast<const std::byte*>(ASN1_STRING_get0_data(inner.get())), kBootClaimsBytes});
}

BootIdentity check_boot_certificate(X509& certificate, X509& device_certificate,
                                    const DeviceIdentity& device, std::time_t now) {
  const bool signed_by_device = X509_verify(&certificate, device.hardware_key.get()) == 1;
  leat::detail::tls_reason();
  if (!signed_by_device || X509_NAME_cmp(X509_get_issuer_name(&certificate),
                                         X509_get_subject_name(&device_certificate)) != 0)
    throw Refused(Refusal::kBootSignature, "the device's hardware key did not sign it");
  if (!valid_at(certificate, now)) throw Refused(Refusal::kBootSignature, "it has expired");
  if ((X509_get_extension_flags(&certificate) & (EXFLAG_CA | EXFLAG_INVALID)) != 0 ||
      X509_get_key_usage(&certificate) != KU_DIGITAL_SIGNATURE)
    throw Refused(Refusal::kBootSignature, "it is not that of a controller");
  BootIdentity identity{read_claims(certificate), KeyHandle(X509_get_pubkey(&certificate))};
  for (int i = 0; i < X509_get_ext_count(&certificate); ++i) {
    X509_EXTENSION* const extension = X509_get_ext(&certificate, i);
    const int nid = OBJ_obj2nid(X509_EXTENSION_get_object(extension));
    if (X509_EXTENSION_get_critical(extension) == 1 && nid != NID_undef &&
        nid != NID_basic_constraints && nid != NID_key_usage)
      throw Refused(Refusal::kBootSignature, "it has an unknown critical extension");
  }
  if (identity.claims.device != device.device)
    throw Refused(Refusal::kDevice, "its boot certificate names another device");
  return identity;
}

}  // namespace leat::trusted::remote
