// The frames of the handshake: their meaning and their bytes. Pure; docs/wire_format.md has the
// layout. Every frame has a fixed size, so that no peer can make us wait for or store more.
//
//   client                      listener
//   Hello            ------->
//                    <-------   Answer (a device and how to connect to it, or a refusal)
//                    <-------   Result (the listener's side is ready, or why not)
//   Result           ------->   (sent at once if the client's side failed)
//                    <-------   the next Answer, if either side failed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/settings.h"
#include "handshake/device_list.h"
#include "leat/error.h"
#include "transport/transport.h"
#include "verbs/device.h"
#include "verbs/host_identity.h"

namespace leat::detail {

// Raised with every change of a frame, or of what a transport may send. The header and the place of
// Answer's code and text stay.
inline constexpr std::uint16_t kProtocolVersion = 9;

inline constexpr std::size_t kTransportNameBytes = 32;  // and so at most 31 characters
inline constexpr std::size_t kMaxDevices = 8;           // kinds in a hello
inline constexpr std::size_t kDeviceKindBytes = 16;
inline constexpr std::size_t kDeviceNameBytes = 64;
inline constexpr std::size_t kAddressBytes = 64;
inline constexpr std::size_t kReasonBytes = 512;
inline constexpr std::size_t kErrorTextBytes = 1024;

enum class FrameKind : std::uint16_t { kHello = 1, kAnswer = 2, kResult = 3 };

enum class DeviceUse : std::uint8_t {
  kExcluded,  // by the settings of that side
  kAllowed,   // not looked at yet
  kUsable,
  kUnusable,  // for the reason given
};

struct DeviceState {
  DeviceUse use = DeviceUse::kExcluded;
  std::string name;  // "ib:mlx5_0"; empty while not known
  std::string why_not;
  std::string name_with_port;  // this side's own business
};

struct KnownDevice {
  std::string kind;  // as in the sender's table of devices (verbs/table.h)
  DeviceState state;
};

// What one side is and wants.
struct Hello {
  HostIdentity host;
  Secret nonce{};    // comes back in each Answer, which proves that it answers this hello
  Secret process{};  // this_process() of the sender
  std::string from;  // the addresses of the connection, as it sees them
  std::string to;
  std::vector<KnownDevice> devices;  // each kind once, at most kMaxDevices
  std::string device_setting;
  std::string transport = "auto";
  Fallback fallback = Fallback::kAllow;
  bool seals = false;  // messages that leave the host are to be encrypted

  // Null if the sender does not know that kind.
  const DeviceState* find_device(std::string_view kind) const;
  DeviceState& device(std::string_view kind);  // added if it is not there
};

// The listener's choice, or its refusal, which ends the handshake.
struct Answer {
  bool refused = false;
  ErrorCode code = ErrorCode::kUnavailable;  // of a refusal
  std::string text;                          // of a refusal: what failed and what to do
  Secret nonce{};                            // the hello's
  std::string device;                        // its kind
  std::string transport;
  std::string device_name;  // the listener's
  std::string rejected;     // better devices, and why not
  std::uint32_t fallbacks = 0;
  std::uint32_t budget_ms = 0;   // how long the listener waits for this device to connect
  std::vector<std::byte> offer;  // for Device::connect; empty for tcp
};

// Whether one side of the chosen device is ready.
struct Result {
  bool failed = false;
  ErrorCode code = ErrorCode::kSystem;  // of the failure
  std::string text;
  std::vector<std::byte> setup;  // of the transport
};

inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kDeviceBytes = kDeviceKindBytes + 1 + kDeviceNameBytes + kReasonBytes;
inline constexpr std::size_t kHelloBytes = kFrameHeaderBytes + 16 + 4 + 8 + 16 + 16 +
                                           2 * kAddressBytes + kMaxDevices * kDeviceBytes +
                                           kReasonBytes + kTransportNameBytes + 1 + 1;
inline constexpr std::size_t kAnswerBytes =
    kFrameHeaderBytes + 1 + 1 + kErrorTextBytes + 16 + kDeviceKindBytes + kTransportNameBytes +
    kDeviceNameBytes + kErrorTextBytes + 4 + 4 + 2 + kMaxOfferBytes;
inline constexpr std::size_t kResultBytes =
    kFrameHeaderBytes + 1 + 1 + kErrorTextBytes + 2 + kMaxSetupBytes;
inline constexpr std::size_t kMaxFrameBytes = 8192;
static_assert(kHelloBytes <= kMaxFrameBytes && kAnswerBytes <= kMaxFrameBytes &&
              kResultBytes <= kMaxFrameBytes);

std::size_t frame_bytes(FrameKind kind);

// Texts that are too long are cut, bytes that are too many are an error of the caller's
// (kInvalidArgument).
std::vector<std::byte> encode(const Hello& hello);
std::vector<std::byte> encode(const Answer& answer);
std::vector<std::byte> encode(const Result& result);

// The first kFrameHeaderBytes of what should be a frame of that kind. Throws kVersion for another
// version, kAuthentication for TLS, kProtocol for anything else and says what it looks like.
void check_header(std::span<const std::byte> header, FrameKind expected);

// A whole frame, header included. Throw as check_header, and kProtocol that names the wrong field.
Hello decode_hello(std::span<const std::byte> frame);
Answer decode_answer(std::span<const std::byte> frame);
Result decode_result(std::span<const std::byte> frame);

}  // namespace leat::detail
