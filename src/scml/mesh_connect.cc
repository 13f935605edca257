#include "scml/mesh_connect.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "leat/error.h"
#include "leat/listener.h"

namespace leat::scml::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectTimeout{10'000};
constexpr std::chrono::milliseconds kHelloTimeout{5'000};  // limit for a newcomer's hello
constexpr std::chrono::milliseconds kNap{1};
constexpr std::uint64_t kRegionBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMaxNewcomers = 64;

// The first message of a connecting party. The answer is empty, or says why it is turned away.
struct Hello {
  std::array<char, 8> magic{'l', 'e', 'a', 't', 'm', 'e', 's', 'h'};
  std::uint32_t version = 1;
  std::uint32_t party = 0;
  std::uint32_t parties = 0;
  std::uint32_t thread = 0;
  std::uint32_t carrier = 0;
  std::uint32_t has_plan = 0;
  std::uint64_t region_bytes = 0;
  std::array<std::uint8_t, 32> digest{};
};
static_assert(sizeof(Hello) == 72);

std::string plan_name(const Hello& hello) {
  return hello.has_plan != 0 ? digest_text(hello.digest) : "no plan";
}

// "host:port" with `thread` added to the port.
std::string address_of(const std::string& address, unsigned thread) {
  const std::size_t colon = address.rfind(':');
  unsigned port = 0;
  const char* end = address.data() + address.size();
  if (colon == std::string::npos || colon == 0 ||
      std::from_chars(address.data() + colon + 1, end, port).ptr != end ||
      colon + 1 == address.size() || port == 0 || port > 65535)
    throw invalid("'" + address + "' is not the address of a party", "Give each as host:port.");
  if (thread > 65535 - port)
    throw invalid("port " + std::to_string(port) + " of " + address + " and thread " +
                  std::to_string(thread) + " give no port");
  return address.substr(0, colon + 1) + std::to_string(port + thread);
}

// One construction of a mesh.
class Meeting {
 public:
  explicit Meeting(const MeshOptions& options);

  std::vector<Channel> connect();

 private:
  struct Newcomer {
    Channel channel;
    Clock::time_point until;
  };

  std::string name_of(unsigned party) const {
    return "party " + std::to_string(party) + " (" + addresses_[party] + ")";
  }
  void connect_to(unsigned party);
  void await_answer(unsigned party);
  void serve_newcomers();
  // False: it has said nothing yet. A stranger's channel is closed.
  bool admit(Newcomer& newcomer);
  // Empty, or why it cannot be in this mesh.
  std::string objection(const Hello& hello) const;
  [[noreturn]] void time_out(const std::string& missing) const;

  const unsigned self_;
  std::vector<std::string> addresses_;
  Options options_;
  Clock::time_point deadline_;
  Hello hello_;
  std::optional<Listener> listener_;
  std::vector<std::optional<Channel>> channels_;
  std::vector<Newcomer> newcomers_;
  std::string turned_away_;  // the last one, and why
};

Meeting::Meeting(const MeshOptions& options) : self_(options.self), options_(options.options) {
  const std::size_t parties = options.addresses.size();
  if (parties < kMinParties || parties > kMaxParties)
    throw invalid("a mesh of " + std::to_string(parties) + " parties", "It has 2 to 16.");
  if (self_ >= parties)
    throw invalid("party " + std::to_string(self_) + " of " + std::to_string(parties),
                  "Parties are counted from 0.");
  for (const std::string& address : options.addresses) {
    addresses_.push_back(address_of(address, options.thread));
    const auto same = std::find(addresses_.begin(), addresses_.end(), addresses_.back());
    if (same != addresses_.end() - 1)
      throw invalid("parties " + std::to_string(same - addresses_.begin()) + " and " +
                    std::to_string(addresses_.size() - 1) + " have the same address, " +
                    addresses_.back());
  }
  if (options.plan != nullptr && options.plan->task_options.parties != parties)
    throw invalid("the plan is for " + std::to_string(options.plan->task_options.parties) +
                  " parties, the mesh has " + std::to_string(parties));

  hello_.party = self_;
  hello_.parties = static_cast<std::uint32_t>(parties);
  hello_.thread = options.thread;
  hello_.carrier = static_cast<std::uint32_t>(options.carrier);
  hello_.region_bytes = region_bytes(options);
  if (options.plan != nullptr) {
    hello_.has_plan = 1;
    hello_.digest = options.plan->digest;
  }

  options_.connect_retry = true;
  options_.planned_bytes.reset();
  options_.planned_digest.reset();
  switch (options.carrier) {
    case Carrier::kTcp:
      options_.transport = "tcp";
      break;
    case Carrier::kUnified:
    case Carrier::kContexts:
      options_.transport = "ring";
      break;
    case Carrier::kPlanned:
      options_.transport = "planned";
      options_.planned_bytes = hello_.region_bytes;
      if (options.plan != nullptr) options_.planned_digest = digest_text(hello_.digest);
      break;
  }
  deadline_ = Clock::now() + options_.connect_timeout.value_or(kConnectTimeout);
  channels_.resize(parties);
}

std::vector<Channel> Meeting::connect() {
  const unsigned parties = hello_.parties;
  if (self_ + 1 < parties) listener_.emplace(addresses_[self_], options_);
  for (unsigned party = 0; party < self_; ++party) {
    connect_to(party);
    await_answer(party);
  }
  for (unsigned party = self_ + 1; party < parties; ++party) {
    while (!channels_[party]) {
      serve_newcomers();
      if (channels_[party]) break;
      if (Clock::now() > deadline_) time_out(name_of(party) + " has not connected");
      std::this_thread::sleep_for(kNap);
    }
  }
  std::vector<Channel> channels;
  for (auto& channel : channels_)
    if (channel) channels.push_back(std::move(*channel));
  return channels;
}

void Meeting::connect_to(unsigned party) {
  options_.connect_timeout = std::max(
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()), kNap);
  // In a thread, because the address may turn out to be our own, and we have to answer there.
  auto connected =
      std::async(std::launch::async, [&] { return Channel::connect(addresses_[party], options_); });
  while (connected.wait_for(kNap) != std::future_status::ready) serve_newcomers();
  try {
    channels_[party] = connected.get();
    channels_[party]->send(std::as_bytes(std::span(&hello_, 1)));
  } catch (const Error& error) {
    throw Error(error.code(), name_of(party) + ": " + error.what(), {}, error.system_errno());
  }
}

void Meeting::await_answer(unsigned party) {
  for (;;) {
    std::optional<Message> answer;
    try {
      answer = channels_[party]->try_receive();
    } catch (const Error& error) {
      throw Error(error.code(), name_of(party) + ": " + error.what(), {}, error.system_errno());
    }
    if (answer && !*answer)
      throw Error(ErrorCode::kPeerDied, name_of(party) + " ended while the parties were meeting");
    if (answer && answer->size() == 0) return;
    if (answer)
      throw invalid(name_of(party) + " turns party " + std::to_string(self_) +
                    " away: " + std::string(answer->text()));
    serve_newcomers();
    if (Clock::now() > deadline_) time_out(name_of(party) + " has not answered");
    std::this_thread::sleep_for(kNap);
  }
}

void Meeting::serve_newcomers() {
  if (!listener_) return;
  while (newcomers_.size() < kMaxNewcomers) {
    std::optional<Channel> channel = listener_->try_accept();
    if (!channel) break;
    newcomers_.push_back({std::move(*channel), Clock::now() + kHelloTimeout});
  }
  std::erase_if(newcomers_, [this](Newcomer& newcomer) {
    try {
      return admit(newcomer) || Clock::now() > newcomer.until;
    } catch (const Error&) {
      return true;  // it went away
    }
  });
}

bool Meeting::admit(Newcomer& newcomer) {
  const auto message = newcomer.channel.try_receive();
  if (!message) return false;
  Hello hello;
  if (message->size() == sizeof hello) std::memcpy(&hello, message->data(), sizeof hello);
  if (message->size() != sizeof hello || hello.magic != Hello{}.magic) {
    turned_away_ = newcomer.channel.peer_address() + ", which is not a party of a mesh";
    return true;
  }
  const std::string why = objection(hello);
  newcomer.channel.send(why);
  if (why.empty()) {
    channels_[hello.party] = std::move(newcomer.channel);
  } else {
    turned_away_ = newcomer.channel.peer_address() + ": " + why;
  }
  return true;
}

std::string Meeting::objection(const Hello& hello) const {
  const std::string here = " at party " + std::to_string(self_);
  const std::string there = " at party " + std::to_string(hello.party);
  if (hello.version != hello_.version)
    return "it speaks version " + std::to_string(hello.version) + " of the mesh, this party " +
           std::to_string(hello_.version);
  if (hello.parties != hello_.parties)
    return "the number of parties is " + std::to_string(hello_.parties) + here + " and " +
           std::to_string(hello.parties) + there;
  if (hello.party == self_)
    return "it says that it is party " + std::to_string(self_) + ", as this one";
  if (hello.party >= hello_.parties || hello.party < self_)
    return "it says that it is party " + std::to_string(hello.party) +
           ", which does not connect to party " + std::to_string(self_);
  if (hello.thread != hello_.thread)
    return "the thread is " + std::to_string(hello_.thread) + here + " and " +
           std::to_string(hello.thread) + there;
  if (hello.carrier != hello_.carrier)
    return "the carrier is " + std::string(to_string(static_cast<Carrier>(hello_.carrier))) + here +
           " and " + std::string(to_string(static_cast<Carrier>(hello.carrier))) + there;
  if (hello.has_plan != hello_.has_plan || hello.digest != hello_.digest)
    return "the plans differ: " + plan_name(hello_) + here + " and " + plan_name(hello) + there;
  if (hello.region_bytes != hello_.region_bytes)
    return "planned_bytes are " + std::to_string(hello_.region_bytes) + here + " and " +
           std::to_string(hello.region_bytes) + there;
  if (channels_[hello.party])
    return "party " + std::to_string(hello.party) + " is connected already, as " +
           channels_[hello.party]->peer_address();
  return {};
}

void Meeting::time_out(const std::string& missing) const {
  throw Error(
      ErrorCode::kTimeout,
      missing + " in time" + (turned_away_.empty() ? "" : "; turned away was " + turned_away_),
      "Start all parties within connect_timeout_ms, with the same settings.");
}

}  // namespace

std::uint64_t region_bytes(const MeshOptions& options) {
  constexpr std::uint64_t kUnit = kAlignmentBytes;
  const std::uint64_t bytes = options.plan != nullptr
                                  ? options.plan->peak_bytes
                                  : options.options.planned_bytes.value_or(kRegionBytes);
  if (bytes > (std::uint64_t{1} << 48))
    throw invalid("planned_bytes of " + std::to_string(bytes) + " are more than a machine has");
  return (std::max(bytes, kUnit) + kUnit - 1) / kUnit * kUnit;
}

std::vector<Channel> connect_parties(const MeshOptions& options) {
  return Meeting(options).connect();
}

}  // namespace leat::scml::detail
