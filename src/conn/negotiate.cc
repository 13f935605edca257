#include "conn/negotiate.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/quote.h"
#include "conn/choice.h"
#include "verbs/device_table.h"

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

void send_frame(const Negotiation& side, const std::vector<std::byte>& frame) {
  write_all(*side.link.stream, frame, side.deadline);
}

// A whole frame of that kind with a valid header.
std::vector<std::byte> receive_frame(const Negotiation& side, FrameKind kind) {
  std::vector<std::byte> frame(frame_bytes(kind));
  const std::span<std::byte> bytes(frame);
  const auto read = [&](std::span<std::byte> part) {
    try {
      read_all(*side.link.stream, part, side.deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout && error.code() != ErrorCode::kPeerDied) throw;
      throw Error(error.code(), std::string("no ") + name_of(kind) + ": " + error.what(), {},
                  error.system_errno());
    }
  };
  read(bytes.first(kFrameHeaderBytes));
  check_header(bytes.first(kFrameHeaderBytes), kind);
  read(bytes.subspan(kFrameHeaderBytes));
  return frame;
}

// The verbs device towards the peer, as far as the settings allow it.
DeviceState look_for_ib(const Negotiation& side) {
  DeviceState state{DeviceUse::kUnusable, {}, {}};
  try {
    state.name = ib_device_for_route(side.local_host, side.peer_host, state.why_not);
  } catch (const Error& error) {
    state.why_not = error.what();
  }
  if (state.name.empty()) return state;
  if (side.devices.allows(state.name)) {
    state.use = DeviceUse::kUsable;
  } else {
    state.why_not = "the route to the peer uses " + state.name +
                    ", which device = " + quoted(side.devices.text()) + " does not allow";
  }
  return state;
}

Hello make_hello(const Negotiation& side) {
  Hello hello;
  hello.host = host_identity();
  hello.nonce = random_secret();
  hello.device_setting = side.devices.text();
  hello.transport = side.settings.transport;
  hello.fallback = side.settings.fallback;
  for (unsigned i = 0; i < kDeviceKindCount; ++i) {
    const auto kind = static_cast<DeviceKind>(i);
    if (side.devices.allows(kind)) hello.device(kind).use = DeviceUse::kAllowed;
  }
  return hello;
}

// Between two addresses of one host shm comes first, and looking for verbs devices takes time.
bool shm_is_likely(const Negotiation& side) { return side.local_host == side.peer_host; }

void open(const Negotiation& side, DeviceKind kind, const DeviceState& own) {
  if (kind == DeviceKind::kTcp) return;
  const std::string name = kind == DeviceKind::kShm ? "shm" : own.name;
  side.link.device = open_device(name, side.peer_host);
  side.link.device_name = side.link.device->info().name;
}

// In this order: nothing may outlive what it stands on.
void drop_device(Link& link) {
  link.queue_pair.reset();
  link.device.reset();
  link.device_name = to_string(DeviceKind::kTcp);
  link.transport.clear();
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
    if (result.setup.size() > kMaxSetupBytes) {
      throw Error(ErrorCode::kInvalidArgument, "the transport's setup is larger than 1024 bytes");
    }
  } catch (const Error& error) {
    result = {true, error.code(), error.what(), {}};
  } catch (const std::exception& error) {
    result = {true, ErrorCode::kResource, error.what(), {}};
  }
  return result;
}

void complete(const Negotiation& side, Result peers, const std::string& rejected,
              std::uint32_t fallbacks) {
  side.link.peer_setup = std::move(peers.setup);
  side.link.rejected = rejected;
  side.link.fallbacks = fallbacks;
  if (fallbacks > 0 && side.settings.fallback == Fallback::kWarn) {
    log(LogLevel::kWarn, "connection with " + side.link.peer_address + " falls back to " +
                             side.link.device_name + " because " + rejected);
  }
}

// --- active side

void check_answer(const Answer& answer, const Hello& hello, unsigned first_kind) {
  const auto wrong = [](const std::string& what) {
    return Error(ErrorCode::kProtocol, "the listener's answer " + what);
  };
  if (!same_secret(answer.nonce, hello.nonce)) throw wrong("is not for our hello");
  const auto kind = static_cast<unsigned>(answer.device);
  if (kind < first_kind) throw wrong("offers a device again");
  if (hello.devices[kind].use == DeviceUse::kExcluded) {
    throw wrong("chose device " + std::string(to_string(answer.device)) + ", which we exclude");
  }
  const bool fits = transport_on(answer.device, answer.transport) == answer.transport;
  const bool wanted = hello.transport == "auto" || hello.transport == answer.transport;
  if (answer.transport.empty() || !fits || !wanted) {
    throw wrong("chose transport " + quoted(answer.transport) + " on device " +
                to_string(answer.device));
  }
}

std::vector<std::byte> connect_device(const Negotiation& side, const Answer& answer, Hello& hello) {
  DeviceState& own = hello.device(answer.device);
  if (answer.device == DeviceKind::kIb && own.use == DeviceUse::kAllowed) own = look_for_ib(side);
  if (own.use == DeviceUse::kUnusable) throw Error(ErrorCode::kUnavailable, own.why_not);
  open(side, answer.device, own);
  if (side.link.device) {
    const auto budget = std::chrono::milliseconds(answer.budget_ms);
    const Deadline end =
        std::min(budget_end(side, budget), budget_end(side, budget_of(side.deadline)));
    side.link.queue_pair = side.link.device->connect(
        answer.offer, queue_depths(*side.link.device, answer.transport), end);
  }
  return side.prepare(side.link);
}

// True once both sides are ready.
bool follow(const Negotiation& side, const Answer& answer, Hello& hello) {
  side.link.transport = answer.transport;
  Result own = run([&] { return connect_device(side, answer, hello); });
  Result peers;
  if (own.failed) {
    // At once: the listener waits for us to connect.
    send_frame(side, encode(own));
    peers = decode_result(receive_frame(side, FrameKind::kResult));
  } else {
    peers = decode_result(receive_frame(side, FrameKind::kResult));
    send_frame(side, encode(own));
  }
  if (own.failed || peers.failed) return false;
  complete(side, std::move(peers), answer.rejected, answer.fallbacks);
  return true;
}

// --- passive side

class Passive {
 public:
  explicit Passive(const Negotiation& side) : side_(side) {}

  void run() {
    client_ = decode_hello(receive_frame(side_, FrameKind::kHello));
    own_ = make_hello(side_);
    agreed_ = agree_on_transport(client_, own_);
    for (unsigned i = 0; i < kDeviceKindCount; ++i) {
      if (serve(static_cast<DeviceKind>(i))) return;
    }
    gave_up_ = true;
    throw Error(last_code_, "no device can be used: " + rejected_,
                "Allow more devices (device=auto), or repair one: leat-info -d shows them.");
  }

  // Whether run() failed for want of a device: the client is waiting to hear why.
  bool gave_up() const { return gave_up_; }

 private:
  // True once both sides are ready on that device.
  bool serve(DeviceKind kind) {
    Verdict verdict = judge(kind, client_, own_, agreed_);
    DeviceState& own = own_.device(kind);
    // Also if the client has none: the error then tells both sides' reasons.
    const bool ask = verdict.possible || client_.device(kind).use == DeviceUse::kUnusable;
    if (ask && kind == DeviceKind::kIb && own.use == DeviceUse::kAllowed) {
      own = look_for_ib(side_);
      verdict = judge(kind, client_, own_, agreed_);
    }
    if (!verdict.possible) {
      reject(kind, verdict.why_not, verdict.is_loss);
      return false;
    }
    check_fallback(kind);
    const auto failure = offer(kind);
    if (!failure) return true;
    drop_device(side_.link);
    last_code_ = failure->code;
    reject(kind, failure->text, true);
    return false;
  }

  void reject(DeviceKind kind, const std::string& why, bool is_loss) {
    if (!rejected_.empty()) rejected_ += "; ";
    rejected_ += std::string(to_string(kind)) + ": " + why;
    if (is_loss) ++fallbacks_;
  }

  void check_fallback(DeviceKind kind) const {
    const bool client_forbids = client_.fallback == Fallback::kNever;
    if (fallbacks_ == 0 || (!client_forbids && own_.fallback != Fallback::kNever)) return;
    throw Error(ErrorCode::kUnavailable,
                std::string("falling back to ") + to_string(kind) + " is forbidden by the " +
                    (client_forbids ? "client" : "listener") + "'s fallback = never: " + rejected_,
                "Repair what is named, or set fallback=allow.");
  }

  std::optional<Failure> offer(DeviceKind kind) {
    Link& link = side_.link;
    link.transport = transport_on(kind, agreed_);
    std::unique_ptr<Offer> offer;
    Answer answer;
    try {
      open(side_, kind, own_.device(kind));
      if (link.device) {
        offer = link.device->offer(queue_depths(*link.device, link.transport), side_.local_host);
        answer.offer = offer->blob();
      }
    } catch (const Error& error) {
      return Failure{error.code(), std::string("listener: ") + error.what()};
    }
    const auto budget = budget_of(side_.deadline);
    answer.nonce = client_.nonce;
    answer.device = kind;
    answer.transport = link.transport;
    answer.device_name = link.device_name;
    answer.rejected = rejected_;
    answer.fallbacks = fallbacks_;
    answer.budget_ms = static_cast<std::uint32_t>(budget.count());
    send_frame(side_, encode(answer));

    const Result own = detail::run([&] {
      if (offer) {
        link.queue_pair = offer->accept(budget_end(side_, budget), link.stream->fd());
      }
      return side_.prepare(link);
    });
    offer.reset();
    if (!own.failed) side_.on_last_word(LastWord::kMayCome);
    send_frame(side_, encode(own));
    Result peers = decode_result(receive_frame(side_, FrameKind::kResult));
    const bool failed = own.failed || peers.failed;
    side_.on_last_word(failed ? LastWord::kNotYet : LastWord::kHeard);
    if (failed) return failure_of(own, peers);
    complete(side_, std::move(peers), rejected_, fallbacks_);
    return std::nullopt;
  }

  static Failure failure_of(const Result& own, const Result& peers) {
    if (!peers.failed) return {own.code, "listener: " + own.text};
    // Its word on the lifeline is what ended our wait: only its reason counts.
    if (!own.failed || own.code == ErrorCode::kPeerDied)
      return {peers.code, "client: " + peers.text};
    return {own.code, "listener: " + own.text + ", client: " + peers.text};
  }

  const Negotiation& side_;
  Hello client_;
  Hello own_;
  std::string agreed_;
  std::string rejected_;
  std::uint32_t fallbacks_ = 0;
  ErrorCode last_code_ = ErrorCode::kUnavailable;
  bool gave_up_ = false;
};

}  // namespace

void negotiate_active(const Negotiation& side) {
  try {
    Hello hello = make_hello(side);
    DeviceState& ib = hello.device(DeviceKind::kIb);
    if (ib.use == DeviceUse::kAllowed && hello.transport != "tcp" && !shm_is_likely(side)) {
      ib = look_for_ib(side);
    }
    send_frame(side, encode(hello));
    for (unsigned next_kind = 0;;) {
      const Answer answer = decode_answer(receive_frame(side, FrameKind::kAnswer));
      if (answer.refused) throw Error(answer.code, "the listener refused: " + answer.text);
      check_answer(answer, hello, next_kind);
      next_kind = static_cast<unsigned>(answer.device) + 1;
      if (follow(side, answer, hello)) return;
      drop_device(side.link);
    }
  } catch (...) {
    drop_device(side.link);
    throw;
  }
}

void negotiate_passive(const Negotiation& side) {
  Passive passive(side);
  try {
    passive.run();
  } catch (const Error& error) {
    drop_device(side.link);
    // Strangers with another protocol get no answer, but who speaks some leat, or TLS, gets one.
    const bool stranger = error.code() == ErrorCode::kTimeout ||
                          error.code() == ErrorCode::kPeerDied ||
                          error.code() == ErrorCode::kProtocol;
    if (!stranger || passive.gave_up()) refuse(*side.link.stream, error, side.deadline);
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

void refuse(Stream& stream, const Error& error, Deadline deadline) noexcept {
  try {
    write_all(stream, refusal(error), deadline);
    linger_close(stream, deadline);
  } catch (const std::exception&) {
    // The client is gone; the listener's own error says what happened.
  }
}

}  // namespace leat::detail
