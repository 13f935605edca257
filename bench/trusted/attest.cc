// leat-bench attest: what attesting, verifying and sending attested messages cost, in the process
// or with a kernel of its own, beside the bare MAC of OpenSSL, beside sends without attestation,
// and beside what TNIC's paper measured on its machines.
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "arguments.h"
#include "cli/allowed.h"
#include "leat/attest/attestation.h"
#include "machine.h"
#include "report.h"
#include "steps_bar.h"
#include "subcommand.h"
#include "trusted/attest_home.h"
#include "trusted/attest_send.h"

namespace leat::bench {
namespace {

using trusted::Algorithm;
using trusted::Kind;
using trusted::kRecordOverheadBytes;
using trusted::Verdict;

struct AlgorithmRow {
  Algorithm algorithm;
  const char* name;     // in ratios
  const char* setting;  // attest_algorithm
  const char* mac;      // as EVP_MAC_fetch knows it
  const char* parameter;
  const char* parameter_value;
  std::size_t key_bytes;
};
constexpr AlgorithmRow kAlgorithms[] = {
    {Algorithm::kHmacSha256, "hmac_sha256", "hmac-sha256", "HMAC", OSSL_MAC_PARAM_DIGEST, "SHA256",
     32},
    {Algorithm::kHmacSha384, "hmac_sha384", "hmac-sha384", "HMAC", OSSL_MAC_PARAM_DIGEST, "SHA384",
     48},
    {Algorithm::kHmacSha512, "hmac_sha512", "hmac-sha512", "HMAC", OSSL_MAC_PARAM_DIGEST, "SHA512",
     64},
    {Algorithm::kAes256Gmac, "aes256_gmac", "aes256-gmac", "GMAC", OSSL_MAC_PARAM_CIPHER,
     "AES-256-GCM", 32},
};

// TNIC, ASPLOS 2025: latency and throughput of attested sends (figure 8), on its FPGAs; latency of
// attesting (figure 5).
constexpr const char* kSource =
    "TNIC, ASPLOS 2025, figures 5 and 8: its own machines, sends over a network";
struct PublishedSend {
  std::size_t bytes;
  double send_us;
  double mbytes;  // a second
};
constexpr PublishedSend kTnic[] = {
    {128, 15.6, 23.7},      {256, 18.1, 38.0},       {512, 23.4, 54.5},
    {1 << 10, 34.3, 69.5},  {2 << 10, 56.0, 80.6},   {4 << 10, 99.0, 87.7},
    {8 << 10, 142.2, 91.6}, {16 << 10, 228.1, 93.8}, {32 << 10, 399.4, 94.9}};
struct PublishedAttest {
  const char* name;
  double us;
};
constexpr PublishedAttest kAttest128B[] = {{"TNIC: attest 128 bytes", 23},
                                           {"server process (Intel): attest 128 bytes", 10.73},
                                           {"SGX: attest 128 bytes", 46.5},
                                           {"AMD SEV: attest 128 bytes", 90}};

void require(Verdict verdict, const char* what) {
  if (verdict != Verdict::kOk)
    throw std::runtime_error(std::string(what) + ": " + std::string(to_string(verdict)));
}

// Two devices with a session between them.
class Devices {
 public:
  Devices(const AttestHome& home, Algorithm algorithm)
      : sender_(home.session(algorithm, true)), receiver_(home.session(algorithm, false)) {
    sender_.begin(receiver_.offer());
    receiver_.begin(sender_.offer());
  }

  void attest(std::span<std::byte> record) {
    const auto payload =
        record.subspan(trusted::kHeaderBytes, record.size() - kRecordOverheadBytes);
    trusted::Proof proof;
    require(sender_.kernel().attest({.session = sender_.id()}, payload, proof), "attest");
    write_record(proof, payload, record);
  }
  void verify(std::span<const std::byte> record) {
    require(receiver_.kernel().verify(record, Kind::kSend), "verify");
  }
  void verify_stateless(std::span<const std::byte> record) {
    require(receiver_.kernel().verify_stateless(record, Kind::kSend), "verify");
  }

 private:
  trusted::detail::ChannelSession sender_, receiver_;
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

// What the fastest tenth of a run kept to: the whole run says more about what else the machine did.
double bytes_per_second(const Bandwidth& bandwidth) {
  return bandwidth.peak_bytes_per_second > 0 ? bandwidth.peak_bytes_per_second
                                             : bandwidth.average_bytes_per_second();
}

double microseconds_each(const Bandwidth& bandwidth) {
  return static_cast<double>(bandwidth.bytes) / bytes_per_second(bandwidth) * 1e6;
}

struct AttestArguments : RunArguments {
  std::string kernel = "in-process";
  bool isolated() const { return kernel == "isolated"; }
};

class AttestBench {
 public:
  explicit AttestBench(const AttestArguments& arguments)
      : arguments_(arguments),
        cores_(choose_cores(arguments.cpus)),
        home_(arguments.isolated(), cores_),
        sending_home_(arguments.isolated(), std::nullopt),
        bar_("attest", kPartsOfAlgorithm * std::size(kAlgorithms) * arguments.sizes.size() +
                           2 * arguments.sizes.size()),
        report_({.bench = "attest",
                 .title = "Attestation",
                 .device = "shm",
                 .transport = "attested+ring",
                 .lines = {{"Kernel", arguments.isolated()
                                          ? "a process of its own, reached over shared memory"
                                          : "in the process"},
                           {"Cores", describe_cores(cores_)}}},
                arguments.json) {}

  void run() {
    // A third process beside two that are tied to two cores would have to share one with either.
    const bool tied = cores_ && !arguments_.isolated();
    if (tied) pin_to_core((*cores_)[0]);
    measure_channels(tied ? cores_ : std::nullopt);
    if (cores_) pin_to_core((*cores_)[0]);
    for (const AlgorithmRow& row : kAlgorithms)
      for (const std::size_t bytes : arguments_.sizes) measure_kernel(row, bytes);
    // Keys in the process are beside nothing that keeps them from it.
    if (arguments_.isolated()) add_published();
    report_.finish();
  }

 private:
  static constexpr std::size_t kPartsOfAlgorithm = 4 + 2;

  void add_published() {
    report_.begin_part("", kSource);
    for (const PublishedAttest& published : kAttest128B)
      report_.add_published(published.name, published.us, "us", kSource);
    for (const PublishedSend& published : kTnic) {
      const std::string what = "TNIC: send " + std::to_string(published.bytes) + " bytes";
      report_.add_published(what, published.send_us, "us", kSource);
      report_.add_published(what, published.mbytes, "MB/s", kSource);
    }
  }

  void measure_channels(const std::optional<CorePair>& cores) {
    report_.begin_part("ring", "ring: messages that are not attested");
    measure_channel("ring", {}, {}, cores);
    for (const AlgorithmRow& row : kAlgorithms) {
      Options options = sending_home_.options();
      options.attest_algorithm = row.setting;
      report_.begin_part(std::string(row.name) + "_send",
                         std::string(row.name) + ": messages over attested+ring");
      measure_channel("attested+ring", options, row.name, cores);
    }
  }

  template <typename Work>
  Bandwidth measure(std::size_t bytes, Work&& work) {
    progress_(0);
    const Bandwidth measured = measure_bandwidth(
        bytes, arguments_.length, clock_, progress_,
        [&](std::uint64_t count) {
          for (std::uint64_t i = 0; i < count; ++i) work();
        },
        [] {});
    bar_.step_done();
    report_.add(measured);
    return measured;
  }

  void measure_kernel(const AlgorithmRow& row, std::size_t bytes) {
    Devices devices(home_, row.algorithm);
    BareMac bare(row);
    std::vector<std::byte> record(bytes + kRecordOverheadBytes, std::byte{1});
    const std::string name = row.name;
    const std::string ending = "_" + cli::size_text(bytes) + "_" + name;
    report_.begin_part(name,
                       name + ": attest and ordered verify together, the bytes of one payload");
    const Bandwidth both = measure(bytes, [&] {
      devices.attest(record);
      devices.verify(record);
    });
    report_.begin_part(name + "_stateless", name + ": stateless verify");
    const Bandwidth verify = measure(bytes, [&] { devices.verify_stateless(record); });
    report_.begin_part(name + "_attest", name + ": attest");
    const Bandwidth attest = measure(bytes, [&] { devices.attest(record); });
    report_.begin_part(name + "_openssl", name + ": the bare MAC of OpenSSL");
    const Bandwidth mac = measure(bytes, [&] { bare.compute(std::span(record).first(bytes)); });

    const std::string home = arguments_.isolated() ? "isolated_" : "";
    report_.add_ratio(home + "attest_verify_us" + ending, microseconds_each(both));
    report_.add_ratio(home + "attest_us" + ending, microseconds_each(attest));
    if (bytes == 128 && row.algorithm == Algorithm::kHmacSha256) {
      report_.add_ratio(home + "attest_verify_128B_us", microseconds_each(both));
      report_.add_ratio(home + "attest_128B_us", microseconds_each(attest));
    }
    if (bytes == arguments_.sizes.back())
      report_.add_ratio(home + "mac_vs_openssl_" + name,
                        microseconds_each(mac) / microseconds_each(verify));
  }

  void measure_channel(const char* transport, Options options, const std::string& name,
                       const std::optional<CorePair>& cores) {
    options.device = "shm";
    options.transport = transport;
    const std::string home = arguments_.isolated() && !name.empty() ? "isolated_" : "";
    measure_sends(
        options, arguments_, cores, clock_, progress_,
        [&](const Bandwidth& stream, const Latency& latency) {
          bar_.step_done();
          bar_.step_done();
          report_.add(stream);
          report_.add(latency);
          const std::string ending =
              cli::size_text(stream.bytes) + "_us_" + (name.empty() ? transport : name);
          report_.add_ratio(home + "send_" + ending, latency.distribution
                                                         ? latency.distribution->typical_us
                                                         : latency.average_us);
          if (stream.bytes == kLargest)
            report_.add_ratio(home + "throughput_32KiB_mbytes_" + (name.empty() ? transport : name),
                              bytes_per_second(stream) * 1e-6);
        });
  }

  static constexpr std::size_t kLargest = 32 << 10;

  const AttestArguments& arguments_;
  const std::optional<CorePair> cores_;
  const AttestHome home_, sending_home_;  // before there is any thread
  const TickClock clock_;
  StepsBar bar_;
  const Progress progress_ = [this](double fraction) { bar_.update(fraction); };
  Report report_;
};

}  // namespace

Run declare_attest(CLI::App& command) {
  const auto arguments = std::make_shared<AttestArguments>();
  arguments->sizes = {64, 128, 256, 1024, 4096, 8192, 32 << 10};
  arguments->length.iterations = 10000;
  command
      .add_option("--kernel", arguments->kernel,
                  "Where keys and counters are held: in-process, or isolated in a leat-attestd")
      ->capture_default_str()
      ->check(cli::one_of({"in-process", "isolated"}))
      ->type_name("WHERE");
  add_run_arguments(command, *arguments);
  return [arguments] { AttestBench(*arguments).run(); };
}

}  // namespace leat::bench
