#include "handshake/hello.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "base/wire.h"

namespace leat::detail {
namespace {

constexpr std::array<std::byte, 4> kMagic = {std::byte{'l'}, std::byte{'e'}, std::byte{'a'},
                                             std::byte{'t'}};

// Error codes go over the wire as their numbers: append only.
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) == 0 &&
              static_cast<int>(ErrorCode::kSystem) == 12);
constexpr std::uint8_t kLastErrorCode = static_cast<std::uint8_t>(ErrorCode::kSystem);

const char* to_string(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
      return "hello";
    case FrameKind::kAnswer:
      return "answer";
    case FrameKind::kResult:
      return "result";
  }
  return "unknown frame";
}

// The body of a frame that is read, with checks that name the field.
class FieldReader {
 public:
  FieldReader(std::span<const std::byte> frame, FrameKind kind) : kind_(kind), reader_({}) {
    check_header(frame.first(std::min(frame.size(), kFrameHeaderBytes)), kind);
    if (frame.size() != frame_bytes(kind)) fail("size");
    reader_ = WireReader(frame.subspan(kFrameHeaderBytes));
  }

  [[noreturn]] void fail(const char* field) const {
    throw Error(ErrorCode::kProtocol,
                std::string("the peer's ") + to_string(kind_) + " has a bad " + field,
                "Something other than leat, or a damaged leat, speaks there.");
  }

  WireReader& raw() { return reader_; }

  std::string text(const char* field, std::size_t width) {
    std::string text;
    if (!reader_.text(text, width)) fail(field);
    return text;
  }

  std::string name(const char* field, std::size_t width) {
    std::string name = text(field, width);
    if (name.size() == width) fail(field);
    return name;
  }

  template <typename Enum>
  Enum enumerator(const char* field, std::uint8_t last) {
    const auto value = reader_.number<std::uint8_t>();
    if (value > last) fail(field);
    return static_cast<Enum>(value);
  }

  Secret secret() {
    const auto bytes = reader_.bytes(std::tuple_size_v<Secret>);
    Secret secret{};
    std::transform(bytes.begin(), bytes.end(), secret.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    return secret;
  }

  // A count and a field that may be wider.
  std::vector<std::byte> blob(const char* field, std::size_t width) {
    const std::size_t count = reader_.number<std::uint16_t>();
    if (count > width) fail(field);
    const auto bytes = reader_.bytes(count);
    if (!reader_.zeros(width - count)) fail(field);
    return {bytes.begin(), bytes.end()};
  }

 private:
  FrameKind kind_;
  WireReader reader_;
};

std::vector<std::byte> start_frame(FrameKind kind) {
  std::vector<std::byte> frame(frame_bytes(kind));
  WireWriter writer(frame);
  writer.bytes(kMagic, kMagic.size());
  writer.number(kProtocolVersion);
  writer.number(static_cast<std::uint16_t>(kind));
  writer.number(static_cast<std::uint32_t>(frame.size()));
  return frame;
}

WireWriter body_of(std::vector<std::byte>& frame) {
  return WireWriter(std::span(frame).subspan(kFrameHeaderBytes));
}

template <typename Enum>
void put(WireWriter& writer, Enum value) {
  writer.number(static_cast<std::uint8_t>(value));
}

void put(WireWriter& writer, const Secret& secret) {
  writer.bytes(std::as_bytes(std::span(secret)), secret.size());
}

void put_blob(WireWriter& writer, std::span<const std::byte> blob, std::size_t width,
              const char* field) {
  if (blob.size() > width) {
    throw Error(ErrorCode::kInvalidArgument, std::string(field) + " of " +
                                                 std::to_string(blob.size()) +
                                                 " bytes is larger than " + std::to_string(width));
  }
  writer.number(static_cast<std::uint16_t>(blob.size()));
  writer.bytes(blob, width);
}

std::string looks_like(std::string_view start) {
  for (const std::string_view method : {"GET ", "POST", "HEAD", "PUT ", "OPTI", "CONN", "HTTP"}) {
    if (start.starts_with(method)) return "HTTP";
  }
  if (start.starts_with("SSH-")) return "SSH";
  return {};
}

}  // namespace

const DeviceState* Hello::find_device(std::string_view kind) const {
  const auto found = std::ranges::find(devices, kind, &KnownDevice::kind);
  return found == devices.end() ? nullptr : &found->state;
}

DeviceState& Hello::device(std::string_view kind) {
  const auto found = std::ranges::find(devices, kind, &KnownDevice::kind);
  if (found != devices.end()) return found->state;
  return devices.emplace_back(KnownDevice{std::string(kind), {}}).state;
}

std::size_t frame_bytes(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
      return kHelloBytes;
    case FrameKind::kAnswer:
      return kAnswerBytes;
    case FrameKind::kResult:
      return kResultBytes;
  }
  return 0;
}

void check_header(std::span<const std::byte> header, FrameKind expected) {
  const std::string_view start(reinterpret_cast<const char*>(header.data()), header.size());
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorCode::kProtocol,
                 std::string("expected leat's ") + to_string(expected) + ", got " + what,
                 "Something other than leat speaks there: check address and port.");
  };
  // 22: handshake, 21: alert; then the version 3.x.
  if (start.size() >= 3 && (start[0] == 22 || start[0] == 21) && start[1] == 3) {
    throw Error(ErrorCode::kAuthentication, "the peer speaks TLS and this side does not",
                "Set the same tls_* settings on both sides.");
  }
  if (start.size() < kFrameHeaderBytes) throw wrong("too few bytes");
  WireReader reader(header);
  if (!std::ranges::equal(reader.bytes(kMagic.size()), kMagic)) {
    const std::string protocol = looks_like(start);
    throw wrong((protocol.empty() ? std::string() : protocol + ": ") +
                quoted(start, kFrameHeaderBytes));
  }
  const auto version = reader.number<std::uint16_t>();
  if (version != kProtocolVersion) {
    throw Error(ErrorCode::kVersion,
                "the peer speaks version " + std::to_string(version) +
                    " of leat's protocol, this side version " + std::to_string(kProtocolVersion),
                "Install the same release of leat on both sides.");
  }
  const auto kind = static_cast<FrameKind>(reader.number<std::uint16_t>());
  if (kind != expected) throw wrong(std::string("its ") + to_string(kind));
  if (reader.number<std::uint32_t>() != frame_bytes(expected)) throw wrong("one of another size");
}

std::vector<std::byte> encode(const Hello& hello) {
  std::vector<std::byte> frame = start_frame(FrameKind::kHello);
  WireWriter writer = body_of(frame);
  writer.bytes(hello.host.boot_id, hello.host.boot_id.size());
  writer.number(hello.host.user);
  writer.number(hello.host.network);
  put(writer, hello.nonce);
  put(writer, hello.process);
  writer.text(hello.from, kAddressBytes);
  writer.text(hello.to, kAddressBytes);
  if (hello.devices.size() > kMaxDevices)
    throw Error(ErrorCode::kInvalidArgument, "a hello of more than 8 kinds of devices");
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    const KnownDevice device = i < hello.devices.size() ? hello.devices[i] : KnownDevice{};
    writer.text(device.kind.substr(0, kDeviceKindBytes - 1), kDeviceKindBytes);
    put(writer, device.state.use);
    writer.text(device.state.name.substr(0, kDeviceNameBytes - 1), kDeviceNameBytes);
    writer.text(device.state.why_not, kReasonBytes);
  }
  writer.text(hello.device_setting, kReasonBytes);
  writer.text(hello.transport.substr(0, kTransportNameBytes - 1), kTransportNameBytes);
  put(writer, hello.fallback);
  put(writer, hello.seals ? 1 : 0);
  return frame;
}

Hello decode_hello(std::span<const std::byte> frame) {
  FieldReader reader(frame, FrameKind::kHello);
  Hello hello;
  std::ranges::copy(reader.raw().bytes(hello.host.boot_id.size()), hello.host.boot_id.begin());
  hello.host.user = reader.raw().number<std::uint32_t>();
  hello.host.network = reader.raw().number<std::uint64_t>();
  hello.nonce = reader.secret();
  hello.process = reader.secret();
  hello.from = reader.text("address", kAddressBytes);
  hello.to = reader.text("address", kAddressBytes);
  bool ended = false;
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    const std::string kind = reader.name("device", kDeviceKindBytes);
    DeviceState state;
    state.use = reader.enumerator<DeviceUse>("device state", 3);
    state.name = reader.name("device name", kDeviceNameBytes);
    state.why_not = reader.text("reason", kReasonBytes);
    const bool blank =
        state.use == DeviceUse::kExcluded && state.name.empty() && state.why_not.empty();
    ended = ended || kind.empty();
    if (ended && !(kind.empty() && blank)) reader.fail("device after the last one");
    if (ended) continue;
    if (hello.find_device(kind) != nullptr) reader.fail("device, for it comes twice");
    hello.device(kind) = std::move(state);
  }
  hello.device_setting = reader.text("device setting", kReasonBytes);
  hello.transport = reader.name("transport", kTransportNameBytes);
  if (hello.transport.empty()) reader.fail("transport");
  hello.fallback = reader.enumerator<Fallback>("fallback setting", 2);
  hello.seals = reader.enumerator<std::uint8_t>("wish for secrecy", 1) == 1;
  return hello;
}

std::vector<std::byte> encode(const Answer& answer) {
  std::vector<std::byte> frame = start_frame(FrameKind::kAnswer);
  WireWriter writer = body_of(frame);
  put(writer, answer.refused ? 1 : 0);
  put(writer, answer.code);
  writer.text(answer.text, kErrorTextBytes);
  put(writer, answer.nonce);
  writer.text(answer.device.substr(0, kDeviceKindBytes - 1), kDeviceKindBytes);
  writer.text(answer.transport.substr(0, kTransportNameBytes - 1), kTransportNameBytes);
  writer.text(answer.device_name.substr(0, kDeviceNameBytes - 1), kDeviceNameBytes);
  writer.text(answer.rejected, kErrorTextBytes);
  writer.number(answer.fallbacks);
  writer.number(answer.budget_ms);
  put_blob(writer, answer.offer, kMaxOfferBytes, "a device's offer");
  return frame;
}

Answer decode_answer(std::span<const std::byte> frame) {
  FieldReader reader(frame, FrameKind::kAnswer);
  Answer answer;
  answer.refused = reader.enumerator<std::uint8_t>("status", 1) == 1;
  answer.code = reader.enumerator<ErrorCode>("error code", kLastErrorCode);
  answer.text = reader.text("error text", kErrorTextBytes);
  answer.nonce = reader.secret();
  answer.device = reader.name("device", kDeviceKindBytes);
  answer.transport = reader.name("transport", kTransportNameBytes);
  answer.device_name = reader.name("device name", kDeviceNameBytes);
  answer.rejected = reader.text("list of reasons", kErrorTextBytes);
  answer.fallbacks = reader.raw().number<std::uint32_t>();
  answer.budget_ms = reader.raw().number<std::uint32_t>();
  answer.offer = reader.blob("offer", kMaxOfferBytes);
  if (answer.fallbacks >= kMaxDevices) reader.fail("count of fallbacks");
  return answer;
}

std::vector<std::byte> encode(const Result& result) {
  std::vector<std::byte> frame = start_frame(FrameKind::kResult);
  WireWriter writer = body_of(frame);
  put(writer, result.failed ? 1 : 0);
  put(writer, result.code);
  writer.text(result.text, kErrorTextBytes);
  put_blob(writer, result.setup, kMaxSetupBytes, "what a transport tells its peer");
  return frame;
}

Result decode_result(std::span<const std::byte> frame) {
  FieldReader reader(frame, FrameKind::kResult);
  Result result;
  result.failed = reader.enumerator<std::uint8_t>("status", 1) == 1;
  result.code = reader.enumerator<ErrorCode>("error code", kLastErrorCode);
  result.text = reader.text("error text", kErrorTextBytes);
  result.setup = reader.blob("setup", kMaxSetupBytes);
  return result;
}

}  // namespace leat::detail
