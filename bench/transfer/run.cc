#include "transfer/run.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "forked_peer.h"
#include "machine.h"
#include "measure.h"
#include "pattern.h"
#include "process_usage.h"
#include "verbs/table.h"

namespace leat::bench {
namespace {

using nlohmann::json;
using Steady = std::chrono::steady_clock;

constexpr std::uint64_t kSeed = 5;
constexpr unsigned kCopies = 5;
// Transfers before the timed ones, if there are more: each of the two regions is new once.
constexpr unsigned kWarmups = 2;
constexpr std::size_t kSmallestMtu = 256;

// Its SHA-256.
std::string digest_of(std::span<const std::byte> bytes) {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("OpenSSL has no SHA-256");
  std::string text;
  for (const std::uint8_t byte : std::span(digest).first(length)) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// What a process needed since begin().
class Watch {
 public:
  // The side that receives counts what both share, so that it is counted once.
  explicit Watch(bool receives) : receives_(receives) {}

  void begin() { base_ = now(); }
  void connected() {
    connected_ = now();
    reset_peak();
  }
  // After each transfer. `payload_bytes`: of the memory in use, the transfer's own. Where it lies
  // in memory that the connection had from the beginning, it is taken from that.
  void transferred(std::size_t payload_bytes) {
    const std::int64_t peak = now() + static_cast<std::int64_t>(released_since_peak());
    const auto payload = static_cast<std::int64_t>(payload_bytes);
    const bool was_there = connected_ - base_ >= payload;
    connection_bytes_ = connected_ - base_ - (was_there ? payload : 0);
    most_bytes_ = peak - connected_ - (was_there ? 0 : payload);
    if (!first_bytes_) first_bytes_ = most_bytes_;
  }
  json report(double cpu) const {
    return {{"cpu_seconds", cpu},
            {"connection_bytes", connection_bytes_},
            {"first_bytes", first_bytes_.value_or(0)},
            {"most_bytes", most_bytes_}};
  }

 private:
  std::int64_t now() const {
    const ResidentMemory memory = resident_memory();
    return static_cast<std::int64_t>(memory.own_bytes + (receives_ ? memory.shared_bytes : 0));
  }

  const bool receives_;
  std::int64_t base_ = 0;
  std::int64_t connected_ = 0;
  std::int64_t connection_bytes_ = 0;
  std::optional<std::int64_t> first_bytes_;
  std::int64_t most_bytes_ = 0;  // since connected()
};

// Zeros that the system gives page by page when they are first used, as it gives the regions of
// leat's receivers and of the raw one: the first transfer meets all of them so.
class UntouchedMemory {
 public:
  explicit UntouchedMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  }
  UntouchedMemory(const UntouchedMemory&) = delete;
  UntouchedMemory& operator=(const UntouchedMemory&) = delete;
  ~UntouchedMemory() {
    if (bytes_ != 0) munmap(memory_, bytes_);
  }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  const std::size_t bytes_;
  void* memory_ = nullptr;
};

// From this process to the one that sends: the receiver waits for the next transfer. Made before
// that process is.
class Turns {
 public:
  Turns() {
    if (pipe2(ends_, O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "pipe");
  }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() {
    for (const int end : ends_) close(end);
  }
  void give() const {
    if (write(ends_[1], "", 1) != 1) throw std::runtime_error("no word to the sender");
  }
  void take() const {
    char byte = 0;
    if (read(ends_[0], &byte, 1) != 1) throw std::runtime_error("no word of the receiver");
  }

 private:
  int ends_[2];
};

unsigned warmups(const RunOptions& options) { return std::min(kWarmups, options.iterations - 1); }

// Runs `side` with what every side has: a core, a limit, and a way to say why it failed.
template <typename Side>
void run_side(const ForkedPeer::Tell& tell, const RunOptions& options, std::size_t core,
              Side&& side) {
  alarm(options.limit_seconds);
  try {
    if (!options.cpus.empty()) pin_to_core(options.cpus[std::min(core, options.cpus.size() - 1)]);
    side();
  } catch (const std::exception& error) {
    tell(json{{"error", error.what()}}.dump());
  }
}

void send_all(const TransferCase& transfer, const RunOptions& options, const Turns& turns,
              const std::string& address, const ForkedPeer::Tell& tell) {
  std::vector<std::byte> payload(transfer.bytes);
  fill_pattern(payload, kSeed, 0);
  const std::string digest = digest_of(payload);
  Watch watch(/*receives=*/false);
  watch.begin();
  const auto end = make_sending_end(transfer);
  end->connect(address);
  watch.connected();
  tell(json{{"device", end->device()}, {"digest", digest}}.dump());
  std::vector<double> seconds;
  double cpu = 0;
  for (unsigned i = 0; i < options.iterations; ++i) {
    turns.take();
    const double cpu_before = cpu_seconds();
    const auto start = Steady::now();
    end->send(payload);
    if (i >= warmups(options)) {
      seconds.push_back(std::chrono::duration<double>(Steady::now() - start).count());
      cpu += cpu_seconds() - cpu_before;
    }
    watch.transferred(0);
  }
  json report = watch.report(cpu / static_cast<double>(seconds.size()));
  report["seconds"] = seconds;
  report["resumes"] = end->resumes();
  tell(report.dump());
  end->stay();  // the parent ends us when the receiver too has said what it has
}

void receive_all(const TransferCase& transfer, const RunOptions& options,
                 const ForkedPeer::Tell& tell) {
  const UntouchedMemory place(needs_place(transfer.carrier) ? transfer.bytes : 0);
  static_cast<void>(digest_of({}));  // what OpenSSL takes for itself belongs to no transfer
  Watch watch(/*receives=*/true);
  watch.begin();
  const auto end = make_receiving_end(transfer, place.bytes());
  tell(json{{"address", end->address()}}.dump());
  end->accept();
  watch.connected();
  json digests = json::array();
  double cpu = 0;
  for (unsigned i = 0; i < options.iterations; ++i) {
    tell(json{{"turn", i}}.dump());
    const double cpu_before = cpu_seconds();
    const std::span<const std::byte> bytes = end->receive();
    if (i >= warmups(options)) cpu += cpu_seconds() - cpu_before;
    digests.push_back(digest_of(bytes));  // and so all of it was touched here
    watch.transferred(bytes.size());
  }
  json report = watch.report(cpu / static_cast<double>(options.iterations - warmups(options)));
  report["digests"] = digests;
  tell(report.dump());
  end->stay();
}

class LocalReceiver final : public ReceiverLink {
 public:
  LocalReceiver(const TransferCase& transfer, const RunOptions& options)
      : process_([&](const ForkedPeer::Tell& tell) {
          run_side(tell, options, 1, [&] { receive_all(transfer, options, tell); });
        }) {}

  std::optional<std::string> try_hear() override { return process_.try_listen(); }
  int fd() override { return process_.fd(); }

 private:
  ForkedPeer process_;
};

SideUsage usage_of(const json& report) {
  return {report.at("cpu_seconds"), report.at("connection_bytes"), report.at("first_bytes"),
          report.at("most_bytes")};
}

// Packets of the verbs device since it had sent `before`, without those that the payload needs.
std::uint64_t packets_beyond(const std::string& device, std::uint64_t before, std::size_t bytes) {
  const std::uint64_t sent = packets_sent(device) - before;
  const std::size_t mtu =
      std::max<std::size_t>(kSmallestMtu, detail::probe_device(device).mtu_bytes);
  const std::uint64_t needed = (bytes + mtu - 1) / mtu;
  return sent > needed ? sent - needed : 0;
}

// One run, as its two processes tell of it.
class Running {
 public:
  Running(const TransferCase& transfer, const RunOptions& options, ReceiverLink& receiver)
      : transfer_(transfer), options_(options), receiver_(receiver) {}

  // Until both have told what they have to. Throws what one of them failed by.
  void run() {
    while (sent_.is_null() || received_.is_null()) {
      std::optional<std::string> said;
      while ((said = receiver_.try_hear())) heard_of_receiver(parse(*said));
      while (sender_ && (said = sender_->try_listen())) heard_of_sender(parse(*said));
      if (!sent_.is_null() && !received_.is_null()) break;
      pollfd waits[] = {{receiver_.fd(), POLLIN, 0}, {sender_ ? sender_->fd() : -1, POLLIN, 0}};
      poll(waits, 2, -1);
    }
  }
  const std::string& device() const { return device_; }
  std::uint64_t packets_before() const { return packets_before_; }
  void tell(TransferResult& result) const {
    result.seconds = sent_.at("seconds").get<std::vector<double>>();
    result.resumes = sent_.at("resumes");
    result.sender = usage_of(sent_);
    result.receiver = usage_of(received_);
    result.complete = received_.at("digests").size() == options_.iterations;
    for (const json& digest : received_.at("digests")) result.complete &= digest == digest_;
    if (!result.complete) result.error = "what arrived has another digest than what was sent";
  }

 private:
  static json parse(const std::string& line) {
    json said = json::parse(line);
    if (said.contains("error")) throw std::runtime_error(said.at("error").get<std::string>());
    return said;
  }
  void heard_of_receiver(json said) {
    if (said.contains("address")) {
      const std::string address = said.at("address");
      sender_.emplace([&](const ForkedPeer::Tell& tell) {
        run_side(tell, options_, 0, [&] { send_all(transfer_, options_, turns_, address, tell); });
      });
    } else if (said.contains("turn")) {
      turns_.give();
    } else {
      received_ = std::move(said);
    }
  }
  void heard_of_sender(json said) {
    if (said.contains("device")) {
      device_ = said.at("device");
      digest_ = said.at("digest");
      packets_before_ = packets_sent(device_);
    } else {
      sent_ = std::move(said);
    }
  }

  const TransferCase& transfer_;
  const RunOptions& options_;
  ReceiverLink& receiver_;
  const Turns turns_;
  std::optional<ForkedPeer> sender_;
  std::string device_;
  std::string digest_;
  std::uint64_t packets_before_ = 0;
  json sent_;
  json received_;
};

}  // namespace

double TransferResult::median_seconds() const { return median_of(seconds); }

std::unique_ptr<ReceiverLink> start_receiver(const TransferCase& transfer,
                                             const RunOptions& options) {
  return std::make_unique<LocalReceiver>(transfer, options);
}

TransferResult run_transfer(const TransferCase& transfer, const RunOptions& options,
                            const StartReceiver& start) {
  TransferResult result;
  const auto begin = Steady::now();
  const std::uint64_t segments = tcp_segments_resent();
  const std::unique_ptr<ReceiverLink> receiver = start(transfer, options);
  Running running(transfer, options, *receiver);
  try {
    running.run();
    running.tell(result);
  } catch (const std::exception& error) {
    const double took = std::chrono::duration<double>(Steady::now() - begin).count();
    result.error = took >= options.limit_seconds
                       ? "not through after " + std::to_string(options.limit_seconds) + " s"
                       : error.what();
  }
  result.device = running.device();
  if (running.packets_before() != 0) {
    result.resent_packets = packets_beyond(result.device, running.packets_before(),
                                           transfer.bytes * options.iterations);
  } else if (result.device == "tcp") {
    result.resent_packets = tcp_segments_resent() - segments;
  }
  return result;
}

double memcpy_seconds(std::size_t bytes) {
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  std::vector<double> seconds;
  for (unsigned i = 0; i < kCopies; ++i) {
    const auto start = Steady::now();
    std::memcpy(to.data(), from.data(), bytes);
    // The compiler must not drop copies that nothing reads.
    asm volatile("" : : "r"(to.data()) : "memory");
    seconds.push_back(std::chrono::duration<double>(Steady::now() - start).count());
  }
  return *std::ranges::min_element(seconds);
}

}  // namespace leat::bench
