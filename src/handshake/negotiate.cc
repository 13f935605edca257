#include "handshake/negotiate.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "base/epoll.h"
#include "base/log.h"
#include "base/quote.h"
#include "handshake/choice.h"
#include "transport/table.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr std::chrono::milliseconds kDefaultBudget{10'000};

// Why one device was given up.
struct Failure {
  ErrorCode code = ErrorCode::kUnavailable;
  std::string text;
};

const char* name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
      return "hello";
    case FrameKind::kAnswer:
      return "answer to the hello";
    case FrameKind::kResult:
      return "result of setting up the device";
  }
  return "frame";
}

std::vector<std::byte> both(std::span<const std::byte> hello, std::span<const std::byte> answer) {
  std::vector<std::byte> greetings(hello.begin(), hello.end());
  greetings.insert(greetings.end(), answer.begin(), answer.end());
  return greetings;
}

void send_frame(const Negotiation& side, const std::vector<std::byte>& frame) {
  write_all(*side.connection.stream, frame, side.deadline);
}

// A stream that tells when bytes may be taken from it, and when they did not suffice.
class WatchedStream final : public Stream {
 public:
  WatchedStream(Stream& stream, const std::function<void(bool)>& reading)
      : stream_(stream), reading_(reading) {}

  std::optional<std::size_t> try_read(std::span<std::byte> bytes) override {
    reading_(true);
    const auto got = stream_.try_read(bytes);
    if (!got) reading_(false);
    return got;
  }
  std::optional<std::size_t> try_write(std::span<const std::byte> bytes) override {
    return stream_.try_write(bytes);
  }
  bool peer_closed() noexcept override { return stream_.peer_closed(); }
  Lifeline look_as_lifeline() noexcept override { return stream_.look_as_lifeline(); }
  int fd() const override { return stream_.fd(); }
  bool encrypted() const override { return stream_.encrypted(); }
  void abort() noexcept override { stream_.abort(); }

 private:
  Stream& stream_;
  const std::function<void(bool)>& reading_;
};

// A whole frame of that kind with a valid header.
std::vector<std::byte> receive_frame(Stream& stream, Deadline deadline, FrameKind kind) {
  std::vector<std::byte> frame(frame_bytes(kind));
  const std::span<std::byte> bytes(frame);
  const auto read = [&](std::span<std::byte> part) {
    try {
      read_all(stream, part, deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout && error.code() != ErrorCode::kPeerDied) throw;
      const char* const advice =
          kind == FrameKind::kAnswer
              ? "The listener's log says why; its process may be out of descriptors or memory, or "
                "have as many connections waiting as its backlog."
              : "";
      throw Error(error.code(), std::string("no ") + name_of(kind) + ": " + error.what(), advice,
                  error.system_errno());
    }
  };
  read(bytes.first(kFrameHeaderBytes));
  check_header(bytes.first(kFrameHeaderBytes), kind);
  read(bytes.subspan(kFrameHeaderBytes));
  return frame;
}
std::vector<std::byte> receive_frame(const Negotiation& side, FrameKind kind) {
  return receive_frame(*side.connection.stream, side.deadline, kind);
}

// The device of a kind that the route to the peer uses, as far as the settings allow it.
DeviceState look_for(const Negotiation& side, const DeviceRow& kind) {
  DeviceState state{DeviceUse::kUnusable, {}, {}, {}};
  try {
    RoutedDevice found = kind.find(side.route);
    state.name = std::move(found.name);
    state.name_with_port = std::move(found.name_with_port);
    state.why_not = std::move(found.why_not);
  } catch (const Error& error) {
    state.why_not = error.what();
  }
  if (state.name.empty()) return state;
  if (side.devices.allows(state.name_with_port)) {
    state.use = DeviceUse::kUsable;
  } else {
    state.why_not = "the route to the peer uses " + state.name_with_port +
                    ", which device = " + quoted(side.devices.text()) + " does not allow";
  }
  return state;
}

Hello make_hello(const Negotiation& side) {
  Hello hello;
  hello.host = host_identity();
  hello.nonce = random_secret();
  hello.process = this_process();
  hello.from = side.connection.local_address;
  hello.to = side.connection.peer_address;
  hello.device_setting = side.devices.text();
  hello.transport = side.settings.transport;
  hello.seals = wishes_sealing(side.settings);
  hello.fallback = side.settings.fallback;
  for (const DeviceRow& kind : device_rows())
    hello.device(kind.kind).use =
        side.devices.allows(kind) ? DeviceUse::kAllowed : DeviceUse::kExcluded;
  return hello;
}

// Looking for devices takes time: not for those after one that will probably be used.
void look_ahead(const Negotiation& side, Hello& hello) {
  for (const DeviceRow& kind : device_rows()) {
    DeviceState& own = hello.device(kind.kind);
    if (own.use != DeviceUse::kAllowed || transport_on(kind, {hello.transport}).empty()) continue;
    if (kind.is_likely != nullptr && kind.is_likely(side.route)) return;
    if (kind.find != nullptr) own = look_for(side, kind);
  }
}

std::unique_ptr<Device> open(const Negotiation& side, const DeviceRow& kind,
                             const DeviceState& own) {
  if (!kind.rdma()) return nullptr;
  const std::string name = own.name.empty()             ? kind.kind
                           : side.devices.names_ports() ? own.name_with_port
                                                        : own.name;
  auto device = open_device(name, side.route.peer_host);
  device->set_peer_timeout(side.settings.ib_peer_timeout);
  side.connection.device_name = device->info().name;
  return device;
}

// Makes the transport, before the peer may send; returns what the peer must know. Throws
// kInvalidArgument if that is more than a result has room for.
std::vector<std::byte> make(const Negotiation& side, Endpoint end) {
  Connection& connection = side.connection;
  connection.closing = new_event();
  end.stream = connection.stream.get();
  end.active = side.active;
  connection.transport = make_transport(connection.transport_name, std::move(end), side.settings);
  std::vector<std::byte> setup = connection.transport->setup();
  if (setup.size() > kMaxSetupBytes)
    throw Error(ErrorCode::kInvalidArgument,
                "transport " + connection.transport_name + " made a setup of " +
                    std::to_string(setup.size()) + " bytes, and its peer takes at most " +
                    std::to_string(kMaxSetupBytes));
  return setup;
}

void drop_transport(Connection& connection) {
  connection.transport.reset();
  connection.device_name = kNoDevice;
  connection.transport_name.clear();
}

Deadline budget_end(const Negotiation& side, std::chrono::milliseconds budget) {
  return std::min(side.deadline, deadline_after(budget));
}

// Half of what is left, so that there is time for the next device.
std::chrono::milliseconds budget_of(Deadline deadline) {
  if (deadline == kNoDeadline) return kDefaultBudget;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return std::clamp(left / 2, std::chrono::milliseconds(1), kDefaultBudget);
}

// Runs one side's part; what it throws becomes the result that the peer is told.
template <typename Work>
Result run(Work work) {
  Result result;
  try {
    result.setup = work();
  } catch (const Error& error) {
    result = {true, error.code(), error.what(), {}};
  } catch (const std::exception& error) {
    result = {true, ErrorCode::kResource, error.what(), {}};
  }
  return result;
}

void complete(const Negotiation& side, const std::string& rejected, std::uint32_t fallbacks) {
  side.connection.rejected = rejected;
  side.connection.fallbacks = fallbacks;
  if (fallbacks > 0 && side.settings.fallback == Fallback::kWarn) {
    log(LogLevel::kWarn, "connection with " + side.connection.peer_address + " falls back to " +
                             side.connection.device_name + " because " + rejected);
  }
}

// --- active side

// The device that it chose; `first`: the first one that it may choose.
const DeviceRow& check_answer(const Answer& answer, const Hello& hello, const DeviceRow* first) {
  const auto wrong = [](const std::string& what) {
    return Error(ErrorCode::kProtocol, "the listener's answer " + what);
  };
  if (!same_secret(answer.nonce, hello.nonce)) throw wrong("is not for our hello");
  const DeviceRow* kind = find_device_row(answer.device);
  if (kind == nullptr || kind->kind != answer.device)
    throw wrong("chose device " + quoted(answer.device) + ", which we do not know");
  if (kind < first) throw wrong("offers a device again");
  if (hello.find_device(answer.device)->use == DeviceUse::kExcluded)
    throw wrong("chose device " + answer.device + ", which we exclude");
  if (!may_answer(*kind, answer.transport, hello.transport)) {
    throw wrong("chose transport " + quoted(answer.transport) + " on device " + answer.device);
  }
  return *kind;
}

std::vector<std::byte> connect_device(const Negotiation& side, const DeviceRow& kind,
                                      const Answer& answer, Hello& hello,
                                      std::vector<std::byte> greetings) {
  DeviceState& own = hello.device(kind.kind);
  if (kind.find != nullptr && own.use == DeviceUse::kAllowed) own = look_for(side, kind);
  if (own.use == DeviceUse::kUnusable) throw Error(ErrorCode::kUnavailable, own.why_not);
  const std::string why_not = forbidden_in_clear(side.settings, kind, answer.transport,
                                                 side.connection.stream->encrypted());
  if (!why_not.empty()) throw Error(ErrorCode::kUnavailable, why_not);
  Endpoint end{.device = open(side, kind, own)};
  if (end.device) {
    const auto budget = std::chrono::milliseconds(answer.budget_ms);
    const Deadline until =
        std::min(budget_end(side, budget), budget_end(side, budget_of(side.deadline)));
    end.depths = queue_depths(*end.device, answer.transport);
    end.queue_pair = end.device->connect(answer.offer, end.depths, until);
  }
  end.greetings = std::move(greetings);
  return make(side, std::move(end));
}

// The peer's setup once both sides are ready; nothing if one of them failed.
std::optional<std::vector<std::byte>> follow(const Negotiation& side, const DeviceRow& kind,
                                             const Answer& answer, Hello& hello,
                                             std::vector<std::byte> greetings) {
  side.connection.transport_name = answer.transport;
  Result own = run([&] { return connect_device(side, kind, answer, hello, std::move(greetings)); });
  Result peers;
  if (own.failed) {
    // At once: the listener waits for us to connect.
    send_frame(side, encode(own));
    peers = decode_result(receive_frame(side, FrameKind::kResult));
  } else {
    peers = decode_result(receive_frame(side, FrameKind::kResult));
    send_frame(side, encode(own));
  }
  if (own.failed || peers.failed) return std::nullopt;
  complete(side, answer.rejected, answer.fallbacks);
  return std::move(peers.setup);
}

// --- passive side

class Passive {
 public:
  explicit Passive(const Negotiation& side) : side_(side) {}

  std::vector<std::byte> run(std::span<const std::byte> hello) {
    client_ = decode_hello(hello);
    greeting_ = hello;
    own_ = make_hello(side_);
    check_way(client_);
    agreed_ = agree_on_transport(client_, own_);
    for (const DeviceRow& kind : device_rows()) {
      if (serve(kind)) return std::move(peer_setup_);
    }
    gave_up_ = true;
    throw Error(last_code_, "no device can be used: " + rejected_,
                "Allow more devices (device=auto), or repair one: leat-info -d shows them.");
  }

  // A relay without a key can lead a connection to any holder of the key, so also back to the
  // process that made it, which would then talk to itself. Both sides of a direct connection see
  // the same two ends.
  void check_way(const Hello& client) const {
    if (!side_.connection.stream->encrypted() || !same_secret(client.process, own_.process)) return;
    if (client.from == own_.to && client.to == own_.from) return;
    throw Error(ErrorCode::kAuthentication,
                "the connection that was made to " + client.to + " was led back to " + own_.from +
                    ", a listener of the same process",
                "Somebody in between redirects connections, or a proxy does.");
  }

  // Whether run() failed for want of a device: the client is waiting to hear why.
  bool gave_up() const { return gave_up_; }

 private:
  // True once both sides are ready on that device.
  bool serve(const DeviceRow& kind) {
    Verdict verdict = judge(kind, client_, own_, agreed_);
    DeviceState& own = own_.device(kind.kind);
    // Also if the client has none: the error then tells both sides' reasons.
    const DeviceState* clients = client_.find_device(kind.kind);
    const bool ask =
        verdict.possible || (clients != nullptr && clients->use == DeviceUse::kUnusable);
    if (ask && kind.find != nullptr && own.use == DeviceUse::kAllowed) {
      own = look_for(side_, kind);
      verdict = judge(kind, client_, own_, agreed_);
    }
    if (!verdict.possible) {
      reject(kind, verdict.why_not, verdict.is_loss);
      return false;
    }
    const std::string clear = forbidden_in_clear(side_.settings, kind, transport_on(kind, agreed_),
                                                 side_.connection.stream->encrypted());
    if (!clear.empty()) {
      reject(kind, clear, false);
      return false;
    }
    check_fallback(kind);
    const auto failure = offer(kind);
    if (!failure) return true;
    drop_transport(side_.connection);
    last_code_ = failure->code;
    reject(kind, failure->text, true);
    return false;
  }

  void reject(const DeviceRow& kind, const std::string& why, bool is_loss) {
    if (!rejected_.empty()) rejected_ += "; ";
    rejected_ += std::string(kind.kind) + ": " + why;
    if (is_loss) ++fallbacks_;
  }

  void check_fallback(const DeviceRow& kind) const {
    const bool client_forbids = client_.fallback == Fallback::kNever;
    if (fallbacks_ == 0 || (!client_forbids && own_.fallback != Fallback::kNever)) return;
    throw Error(ErrorCode::kUnavailable,
                std::string("falling back to ") + kind.kind + " is forbidden by the " +
                    (client_forbids ? "client" : "listener") + "'s fallback = never: " + rejected_,
                "Repair what is named, or set fallback=allow.");
  }

  std::optional<Failure> offer(const DeviceRow& kind) {
    Connection& connection = side_.connection;
    connection.transport_name = transport_on(kind, agreed_);
    Endpoint end;
    std::unique_ptr<Offer> offer;
    Answer answer;
    try {
      end.device = open(side_, kind, own_.device(kind.kind));
      if (end.device) {
        end.depths = queue_depths(*end.device, connection.transport_name);
        offer = end.device->offer(end.depths, side_.route.local_host);
        answer.offer = offer->blob();
      }
    } catch (const Error& error) {
      return Failure{error.code(), std::string("listener: ") + error.what()};
    }
    const auto budget = budget_of(side_.deadline);
    answer.nonce = client_.nonce;
    answer.device = kind.kind;
    answer.transport = connection.transport_name;
    answer.device_name = connection.device_name;
    answer.rejected = rejected_;
    answer.fallbacks = fallbacks_;
    answer.budget_ms = static_cast<std::uint32_t>(budget.count());
    const std::vector<std::byte> frame = encode(answer);
    send_frame(side_, frame);
    end.greetings = both(greeting_, frame);

    const Result own = detail::run([&] {
      if (offer) {
        end.queue_pair = offer->accept(budget_end(side_, budget), connection.stream->fd());
      }
      return make(side_, std::move(end));
    });
    offer.reset();
    if (!own.failed) side_.on_last_word(LastWord::kMayCome);
    send_frame(side_, encode(own));
    Result peers = decode_result(receive_last_word(own.failed));
    const bool failed = own.failed || peers.failed;
    side_.on_last_word(failed ? LastWord::kNotYet : LastWord::kHeard);
    if (failed) return failure_of(own, peers);
    complete(side_, rejected_, fallbacks_);
    peer_setup_ = std::move(peers.setup);
    return std::nullopt;
  }

  // While it is being read nobody else can see that it has come.
  std::vector<std::byte> receive_last_word(bool own_failed) {
    const std::function<void(bool)> reading = [&](bool now) {
      if (!own_failed) side_.on_last_word(now ? LastWord::kHeard : LastWord::kMayCome);
    };
    WatchedStream watched(*side_.connection.stream, reading);
    return receive_frame(watched, side_.deadline, FrameKind::kResult);
  }

  static Failure failure_of(const Result& own, const Result& peers) {
    if (!peers.failed) return {own.code, "listener: " + own.text};
    // Its word on the lifeline is what ended our wait: only its reason counts.
    if (!own.failed || own.code == ErrorCode::kPeerDied)
      return {peers.code, "client: " + peers.text};
    return {own.code, "listener: " + own.text + ", client: " + peers.text};
  }

  const Negotiation& side_;
  std::span<const std::byte> greeting_;  // the client's hello, as it came
  Hello client_;
  Hello own_;
  Wish agreed_;
  std::string rejected_;
  std::uint32_t fallbacks_ = 0;
  ErrorCode last_code_ = ErrorCode::kUnavailable;
  std::vector<std::byte> peer_setup_;
  bool gave_up_ = false;
};

// Tells the client why it is turned away, if it still listens, and waits a moment until it has
// heard.
void refuse(Stream& stream, const Error& error, Deadline deadline) noexcept {
  try {
    write_all(stream, refusal(error), deadline);
    linger_close(stream, deadline);
  } catch (const std::exception&) {
    // The client is gone; the listener's own error says what happened.
  }
}

}  // namespace

std::vector<std::byte> negotiate_active(const Negotiation& side) {
  try {
    Hello hello = make_hello(side);
    look_ahead(side, hello);
    const std::vector<std::byte> greeting = encode(hello);
    send_frame(side, greeting);
    for (const DeviceRow* next = device_rows().data();;) {
      const std::vector<std::byte> frame = receive_frame(side, FrameKind::kAnswer);
      const Answer answer = decode_answer(frame);
      if (answer.refused) throw Error(answer.code, "the listener refused: " + answer.text);
      const DeviceRow& kind = check_answer(answer, hello, next);
      next = &kind + 1;
      if (auto setup = follow(side, kind, answer, hello, both(greeting, frame)))
        return std::move(*setup);
      drop_transport(side.connection);
    }
  } catch (...) {
    drop_transport(side.connection);
    throw;
  }
}

std::vector<std::byte> negotiate_passive(const Negotiation& side,
                                         std::span<const std::byte> hello) {
  Passive passive(side);
  try {
    return passive.run(hello);
  } catch (const Error& error) {
    drop_transport(side.connection);
    // Strangers with another protocol get no answer; a peer that speaks some leat, or TLS, gets
    // one.
    const bool stranger = error.code() == ErrorCode::kTimeout ||
                          error.code() == ErrorCode::kPeerDied ||
                          error.code() == ErrorCode::kProtocol;
    if (!stranger || passive.gave_up()) refuse(*side.connection.stream, error, side.deadline);
    throw;
  }
}

std::vector<std::byte> refusal(const Error& error) {
  Answer answer;
  answer.refused = true;
  answer.code = error.code();
  answer.text = error.what();
  return encode(answer);
}

}  // namespace leat::detail
