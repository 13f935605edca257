#include "trusted/remote/files.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/fd.h"
#include "base/quote.h"
#include "base/system_error.h"
#include "base/wire.h"
#include "leat/error.h"
#include "net/tls_context.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::Fd;
using leat::detail::quoted;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kRecordBytes = 16;

using BioHandle = std::unique_ptr<BIO, FreeBy<BIO_free_all>>;

Error bad_file(const std::string& path, const std::string& why, const std::string& advice = {}) {
  return {ErrorCode::kInvalidArgument, quoted(path) + ": " + why, advice};
}

SecretBytes read_all_of(const std::string& path, bool secret) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0)
    throw bad_file(path, std::generic_category().message(errno));
  if (secret && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw bad_file(path, "is a secret that other users of this host can read", "chmod 600 it.");
  if (!S_ISREG(status.st_mode)) throw bad_file(path, "is not a file");
  if (static_cast<std::size_t>(status.st_size) > kMaxFileBytes) throw bad_file(path, "is too long");
  SecretBytes bytes(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got <= 0)
      throw bad_file(
          path, got == 0 ? std::string("became shorter") : std::generic_category().message(errno));
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

// An object of OpenSSL's from a PEM file; `read` is one of its PEM_read_bio functions.
template <typename Handle, typename Read>
Handle read_pem(const std::string& path, const SecretBytes& bytes, Read read) {
  const BioHandle bio(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
  // No passphrase is ever asked for: OpenSSL would take the terminal.
  Handle object(read(
      bio.get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
  const std::string reason = leat::detail::tls_reason();
  if (!object) throw bad_file(path, "is not of its form in PEM (" + reason + ")");
  return object;
}

template <typename Write>
void write_pem(const std::string& path, bool secret, Write write) {
  const BioHandle bio(secret ? BIO_new(BIO_s_secmem()) : BIO_new(BIO_s_mem()));
  check_crypto(write(bio.get()), "PEM encoding");
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  write_file(path, as_bytes({text, static_cast<std::size_t>(bytes)}), secret);
}

KeyHandle checked(const std::string& path, KeyHandle key) {
  if (!is_ed25519(*key)) throw bad_file(path, "is not an Ed25519 key");
  return key;
}

}  // namespace

SecretBytes read_secret_file(const std::string& path) { return read_all_of(path, true); }

Bytes read_public_file(const std::string& path) {
  const SecretBytes bytes = read_all_of(path, false);
  return {bytes.begin(), bytes.end()};
}

void write_file(const std::string& path, View bytes, bool secret) {
  const std::string fresh = path + ".new";
  const auto fail = [&](const char* call) {
    throw leat::detail::system_error(std::string(call) + " " + quoted(fresh), errno);
  };
  unlink(fresh.c_str());
  const Fd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0644));
  if (!file) fail("open");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t put = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (put < 0) fail("write");
    done += static_cast<std::size_t>(put);
  }
  if (fsync(file.get()) != 0) fail("fsync");
  if (rename(fresh.c_str(), path.c_str()) != 0) fail("rename");
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Fd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || fsync(directory.get()) != 0) fail("fsync of the folder of");
}

KeyHandle read_private_key(const std::string& path) {
  return checked(path, read_pem<KeyHandle>(path, read_all_of(path, true), PEM_read_bio_PrivateKey));
}

KeyHandle read_public_key(const std::string& path) {
  return checked(path, read_pem<KeyHandle>(path, read_all_of(path, false), PEM_read_bio_PUBKEY));
}

CertificateHandle read_certificate(const std::string& path) {
  return read_pem<CertificateHandle>(path, read_all_of(path, false), PEM_read_bio_X509);
}

RevocationHandle read_revocations(const std::string& path) {
  return read_pem<RevocationHandle>(path, read_all_of(path, false), PEM_read_bio_X509_CRL);
}

void write_private_key(const std::string& path, EVP_PKEY& key) {
  write_pem(path, true, [&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, &key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

void write_public_key(const std::string& path, EVP_PKEY& key) {
  write_pem(path, false, [&](BIO* bio) { return PEM_write_bio_PUBKEY(bio, &key); });
}

void write_certificate(const std::string& path, X509& certificate) {
  write_pem(path, false, [&](BIO* bio) { return PEM_write_bio_X509(bio, &certificate); });
}

void write_revocations(const std::string& path, X509_CRL& revocations) {
  write_pem(path, false, [&](BIO* bio) { return PEM_write_bio_X509_CRL(bio, &revocations); });
}

DeviceRecord read_record(const std::string& path) {
  const Bytes bytes = read_public_file(path);
  if (bytes.size() != kRecordBytes) throw bad_file(path, "is not a device's record");
  leat::detail::WireReader reader(bytes);
  DeviceRecord record;
  record.least_firmware = reader.number<std::uint32_t>();
  record.least_image = reader.number<std::uint32_t>();
  record.last_epoch = reader.number<std::uint64_t>();
  return record;
}

void write_record(const std::string& path, const DeviceRecord& record) {
  std::array<std::byte, kRecordBytes> bytes;
  leat::detail::WireWriter writer(bytes);
  writer.number(record.least_firmware);
  writer.number(record.least_image);
  writer.number(record.last_epoch);
  write_file(path, bytes, true);
}

}  // namespace leat::trusted::remote
