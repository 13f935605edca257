// leat-bench sealed: messages over sealed+X, beside those of X in clear, those of transport tcp
// inside TLS, and the bare cipher of OpenSSL.
#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "arguments.h"
#include "cli/allowed.h"
#include "machine.h"
#include "report.h"
#include "steps_bar.h"
#include "subcommand.h"
#include "trusted/attest_home.h"
#include "trusted/attest_send.h"

namespace leat::bench {
namespace {

struct CipherRow {
  const char* setting;  // sealed_cipher, and the name in the report
  const EVP_CIPHER* (*cipher)();
};
constexpr CipherRow kCiphers[] = {{"aes-256-gcm", EVP_aes_256_gcm},
                                  {"aes-128-gcm", EVP_aes_128_gcm},
                                  {"chacha20-poly1305", EVP_chacha20_poly1305}};

// One message encrypted after the other, from memory of this thread to the same, with its key and
// context used again, as few calls as EVP allows: no additional data.
class BareCipher {
 public:
  explicit BareCipher(const CipherRow& row) : context_(EVP_CIPHER_CTX_new()) {
    const std::array<unsigned char, 32> key{};
    if (!context_ ||
        EVP_EncryptInit_ex2(context_.get(), row.cipher(), key.data(), nullptr, nullptr) != 1)
      throw std::runtime_error(std::string("OpenSSL has no ") + row.setting);
  }

  void seal(const std::vector<unsigned char>& message, std::vector<unsigned char>& sealed) {
    std::array<unsigned char, 12> nonce{};
    std::memcpy(nonce.data(), &counter_, sizeof counter_);
    ++counter_;
    std::array<unsigned char, 16> tag;
    int written = 0;
    EVP_CIPHER_CTX* const context = context_.get();
    if (EVP_EncryptInit_ex2(context, nullptr, nullptr, nonce.data(), nullptr) != 1 ||
        EVP_EncryptUpdate(context, sealed.data(), &written, message.data(),
                          static_cast<int>(message.size())) != 1 ||
        EVP_EncryptFinal_ex(context, nullptr, &written) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, tag.size(), tag.data()) != 1)
      throw std::runtime_error("OpenSSL failed to encrypt");
  }

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  std::uint64_t counter_ = 0;
};

struct SealedArguments : RunArguments {
  std::string device = "shm";
  std::string transport = "ring";
};

class SealedBench {
 public:
  explicit SealedBench(const SealedArguments& arguments)
      : arguments_(arguments),
        cores_(choose_cores(arguments.cpus)),
        key_(false, std::nullopt),
        bar_("sealed", (2 + std::size(kCiphers)) * 2 * arguments.sizes.size() +
                           std::size(kCiphers) * arguments.sizes.size()),
        report_({.bench = "sealed",
                 .title = "Sealed messages",
                 .device = arguments.device,
                 .transport = "sealed+" + arguments.transport,
                 .lines = {{"Cores", describe_cores(cores_)}}},
                arguments.json) {}

  void run() {
    if (cores_) pin_to_core((*cores_)[0]);
    const std::string& inner = arguments_.transport;
    measure_channel(inner, inner + ": messages in clear",
                    {.device = arguments_.device, .transport = inner});
    for (const CipherRow& row : kCiphers) {
      Options options{.device = arguments_.device, .transport = "sealed+" + inner};
      options.sealed_cipher = row.setting;
      measure_channel(row.setting, std::string(row.setting) + ": messages over sealed+" + inner,
                      with_key(options));
    }
    measure_channel("tcp_tls", "tcp inside TLS 1.3, AES-256-GCM",
                    with_key({.device = "tcp", .transport = "tcp"}));
    for (const CipherRow& row : kCiphers) measure_bare(row);
    for (const std::size_t bytes : arguments_.sizes) add_ratios(bytes);
    report_.finish();
  }

 private:
  struct Figures {
    double half_round_trip_us = 0;
    double bytes_per_second = 0;
  };

  Options with_key(Options options) const {
    options.tls_psk_file = key_.options().attest_key_file;
    return options;
  }

  void measure_channel(const std::string& name, const std::string& caption,
                       const Options& options) {
    report_.begin_part(name, caption);
    measure_sends(options, arguments_, cores_, clock_, progress_,
                  [&](const Bandwidth& stream, const Latency& latency) {
                    bar_.step_done();
                    bar_.step_done();
                    report_.add(stream);
                    report_.add(latency);
                    figures_[{name, stream.bytes}] = {latency.distribution
                                                          ? latency.distribution->typical_us
                                                          : latency.average_us,
                                                      stream.average_bytes_per_second()};
                  });
  }

  void measure_bare(const CipherRow& row) {
    const std::string name = std::string(row.setting) + "_openssl";
    report_.begin_part(name, std::string(row.setting) + ": the bare cipher of OpenSSL, one core");
    for (const std::size_t bytes : arguments_.sizes) {
      BareCipher cipher(row);
      const std::vector<unsigned char> message(bytes, 1);
      std::vector<unsigned char> sealed(bytes);
      progress_(0);
      const Bandwidth measured = measure_bandwidth(
          bytes, arguments_.length, clock_, progress_,
          [&](std::uint64_t count) {
            for (std::uint64_t i = 0; i < count; ++i) cipher.seal(message, sealed);
          },
          [] {});
      bar_.step_done();
      report_.add(measured);
      figures_[{name, bytes}].bytes_per_second = measured.average_bytes_per_second();
    }
  }

  void add_ratios(std::size_t bytes) {
    const auto of = [&](const std::string& name) { return figures_[{name, bytes}]; };
    const std::string size = cli::size_text(bytes);
    const Figures tls = of("tcp_tls");
    report_.add_ratio("half_round_trip_" + size + "_us_" + arguments_.transport,
                      of(arguments_.transport).half_round_trip_us);
    report_.add_ratio("half_round_trip_" + size + "_us_tcp_tls", tls.half_round_trip_us);
    for (const CipherRow& row : kCiphers) {
      const std::string ending = std::string("_") + row.setting;
      const Figures sealed = of(row.setting);
      report_.add_ratio("half_round_trip_" + size + "_us" + ending, sealed.half_round_trip_us);
      report_.add_ratio(
          "throughput_vs_openssl_" + size + ending,
          sealed.bytes_per_second / of(std::string(row.setting) + "_openssl").bytes_per_second);
      report_.add_ratio("throughput_vs_" + arguments_.transport + "_" + size + ending,
                        sealed.bytes_per_second / of(arguments_.transport).bytes_per_second);
      report_.add_ratio("throughput_vs_tcp_tls_" + size + ending,
                        sealed.bytes_per_second / tls.bytes_per_second);
      report_.add_ratio("tcp_tls_latency_through_" + size + ending,
                        tls.half_round_trip_us / sealed.half_round_trip_us);
    }
  }

  const SealedArguments& arguments_;
  const std::optional<CorePair> cores_;
  const AttestHome key_;  // for its file
  const TickClock clock_;
  StepsBar bar_;
  const Progress progress_ = [this](double fraction) { bar_.update(fraction); };
  Report report_;
  std::map<std::pair<std::string, std::size_t>, Figures> figures_;
};

}  // namespace

Run declare_sealed(CLI::App& command) {
  const auto arguments = std::make_shared<SealedArguments>();
  arguments->sizes = {64, 4096, 64 << 10, 1 << 20};
  arguments->length.iterations = 10000;
  command.add_option("-d,--device", arguments->device, "shm, ib or ib:NAME")
      ->capture_default_str()
      ->type_name("NAME");
  command.add_option("--transport", arguments->transport, "What is sealed")
      ->capture_default_str()
      ->check(cli::one_of({"ring", "planned", "batched", "confirm-each", "chunked"}))
      ->type_name("X");
  add_run_arguments(command, *arguments);
  return [arguments] { SealedBench(*arguments).run(); };
}

}  // namespace leat::bench
