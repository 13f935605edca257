// leat-bench attest: what attesting and verifying a record costs in the process, beside the bare
// MAC of OpenSSL and beside what TNIC's paper measured on its machines.
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "arguments.h"
#include "leat/trusted/attestation.h"
#include "machine.h"
#include "report.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

using trusted::Algorithm;
using trusted::Kind;
using trusted::kRecordOverheadBytes;
using trusted::Verdict;

constexpr std::uint32_t kSession = 1;
struct AlgorithmRow {
  Algorithm algorithm;
  const char* name;  // in ratios
  const char* mac;   // as EVP_MAC_fetch knows it
  const char* parameter;
  const char* parameter_value;
  std::size_t key_bytes;
};
constexpr AlgorithmRow kAlgorithms[] = {
    {Algorithm::kHmacSha256, "hmac_sha256", "HMAC", OSSL_MAC_PARAM_DIGEST, "SHA256", 32},
    {Algorithm::kHmacSha384, "hmac_sha384", "HMAC", OSSL_MAC_PARAM_DIGEST, "SHA384", 48},
    {Algorithm::kHmacSha512, "hmac_sha512", "HMAC", OSSL_MAC_PARAM_DIGEST, "SHA512", 64},
    {Algorithm::kAes256Gmac, "aes256_gmac", "GMAC", OSSL_MAC_PARAM_CIPHER, "AES-256-GCM", 32},
};

void require(Verdict verdict, const char* what) {
  if (verdict != Verdict::kOk)
    throw std::runtime_error(std::string(what) + ": " + std::string(to_string(verdict)));
}

// Two devices with a session between them.
class Devices {
 public:
  explicit Devices(Algorithm algorithm) : sender_(1, 1), receiver_(2, 1) {
    const std::array<std::byte, 32> key{std::byte{7}};
    for (auto* kernel : {&sender_, &receiver_}) {
      require(kernel->provision({.id = kSession,
                                 .algorithm = algorithm,
                                 .peer = kernel == &sender_ ? 2U : 1U,
                                 .key = key}),
              "provision");
      require(kernel->enable(), "enable");
    }
  }

  void attest(std::span<std::byte> record) {
    const auto payload =
        record.subspan(trusted::kHeaderBytes, record.size() - kRecordOverheadBytes);
    trusted::Proof proof;
    require(sender_.attest({.session = kSession}, payload, proof), "attest");
    std::memcpy(record.data(), proof.header.data(), proof.header.size());
    std::memcpy(record.data() + record.size() - proof.mac.size(), proof.mac.data(),
                proof.mac.size());
  }
  void verify(std::span<const std::byte> record) {
    require(receiver_.verify(record, Kind::kSend), "verify");
  }
  void verify_stateless(std::span<const std::byte> record) {
    require(receiver_.verify_stateless(record, Kind::kSend), "verify");
  }

 private:
  trusted::LocalKernel sender_, receiver_;
};

// OpenSSL's MAC over as many bytes, its context used again as the kernel does.
class BareMac {
 public:
  explicit BareMac(const AlgorithmRow& row) : gmac_(row.algorithm == Algorithm::kAes256Gmac) {
    EVP_MAC* mac = EVP_MAC_fetch(nullptr, row.mac, nullptr);
    context_.reset(mac == nullptr ? nullptr : EVP_MAC_CTX_new(mac));
    EVP_MAC_free(mac);
    const std::array<unsigned char, 64> key{};
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(row.parameter, const_cast<char*>(row.parameter_value), 0),
        OSSL_PARAM_construct_end()};
    if (!context_ || EVP_MAC_init(context_.get(), key.data(), row.key_bytes, params) != 1)
      throw std::runtime_error(std::string("OpenSSL has no ") + row.mac);
  }

  void compute(std::span<const std::byte> bytes) {
    std::array<unsigned char, 12> nonce{};
    std::memcpy(nonce.data(), &counter_, sizeof counter_);
    ++counter_;
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce.data(), nonce.size()),
        OSSL_PARAM_construct_end()};
    std::array<unsigned char, 64> mac;
    std::size_t written = 0;
    if (EVP_MAC_init(context_.get(), nullptr, 0, gmac_ ? params : nullptr) != 1 ||
        EVP_MAC_update(context_.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size()) != 1 ||
        EVP_MAC_final(context_.get(), mac.data(), &written, mac.size()) != 1)
      throw std::runtime_error("OpenSSL failed to compute a MAC");
  }

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  };
  const bool gmac_;
  std::uint64_t counter_ = 0;
  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

double microseconds_each(const Bandwidth& bandwidth) {
  return bandwidth.seconds / static_cast<double>(bandwidth.iterations) * 1e6;
}

void run(const RunArguments& arguments) {
  const TickClock clock;
  StepsBar bar("attest", 3 * std::size(kAlgorithms) * arguments.sizes.size());
  const Progress progress = [&bar](double fraction) { bar.update(fraction); };
  Report report({.bench = "attest",
                 .title = "Attestation in the process",
                 .device = "none",
                 .transport = "none",
                 .lines = {{"Beside",
                            "TNIC, figure 5 (another machine): attest 23 us, with SGX "
                            "45.3 us, with SEV 90 us"}}},
                arguments.json);
  const auto measure = [&](std::size_t bytes, auto&& work) {
    progress(0);
    const Bandwidth measured = measure_bandwidth(
        bytes, arguments.length, clock, progress,
        [&](std::uint64_t count) {
          for (std::uint64_t i = 0; i < count; ++i) work();
        },
        [] {});
    bar.step_done();
    report.add(measured);
    return measured;
  };
  for (const AlgorithmRow& row : kAlgorithms) {
    for (const std::size_t bytes : arguments.sizes) {
      Devices devices(row.algorithm);
      BareMac bare(row);
      std::vector<std::byte> record(bytes + kRecordOverheadBytes, std::byte{1});
      const std::string name = row.name;
      report.begin_part(name,
                        name + ": attest and ordered verify together, the bytes of one payload");
      const Bandwidth both = measure(bytes, [&] {
        devices.attest(record);
        devices.verify(record);
      });
      report.begin_part(name + "_stateless", name + ": stateless verify");
      const Bandwidth verify = measure(bytes, [&] { devices.verify_stateless(record); });
      report.begin_part(name + "_openssl", name + ": the bare MAC of OpenSSL");
      const Bandwidth mac = measure(bytes, [&] { bare.compute(std::span(record).first(bytes)); });
      const std::string ending = "_" + size_name(bytes) + "_" + name;
      report.add_ratio("attest_verify_us" + ending, microseconds_each(both));
      if (bytes == 128 && row.algorithm == Algorithm::kHmacSha256)
        report.add_ratio("attest_verify_128B_us", microseconds_each(both));
      if (bytes == arguments.sizes.back())
        report.add_ratio("mac_vs_openssl_" + name,
                         microseconds_each(mac) / microseconds_each(verify));
    }
  }
  report.finish();
}

}  // namespace

Run declare_attest(CLI::App& command) {
  const auto arguments = std::make_shared<RunArguments>();
  arguments->sizes = {64, 128, 1024, 32 << 10};
  arguments->length.iterations = 20000;
  add_run_arguments(command, *arguments);
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench
