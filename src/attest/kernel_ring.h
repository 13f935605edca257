// The memory that a client and leat-attestd share. Each request has a slot, with the request in one
// half and the reply in the other. docs/attestation.md describes the protocol.
//
// A peer may write anything at any time. So each side copies once what the other has written and
// believes only the copy; nothing in the shared memory is used as an address or a size.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "leat/attest/attestation.h"

namespace leat::trusted::detail {

enum class Operation : std::uint8_t {
  kAttest = 1,           // data: the payload; reply: Proof
  kVerify = 2,           // data: the record
  kVerifyStateless = 3,  // data: the record
  kCounters = 4,         // reply: next_sent, next_received
  kSession = 5,          // reply: role, algorithm, streams, zero, peer
  kOpen = 6,   // a session for one connection; reply: its kernel's number, the daemon's nonce
  kBegin = 7,  // data: the peer's nonce
  kClose = 8,
  kSign = 9,      // data: a record; reply: a signature
  kSeveral = 10,  // data: requests 1 to 3, each with its data; reply: their replies, in order
  kProve = 11,    // data: a random number; reply: the daemon's public key, a signature
};

// Stands for the device's own sessions. Other numbers are those of connections, from kOpen.
inline constexpr std::uint32_t kDeviceKernel = 0;

// Fields that an operation does not use are zero.
struct Request {
  std::uint8_t operation = 0;
  std::uint8_t kind = 0;
  std::uint8_t stream = 0;
  std::uint8_t algorithm = 0;  // kOpen
  std::uint32_t kernel = kDeviceKernel;
  std::uint32_t session =
      0;  // kOpen: the session whose key the connection's key is derived from; 0: the key file
  std::uint32_t bytes = 0;  // of data
  std::uint32_t slot = 0;
  std::uint32_t active = 0;  // kBegin: 1 at the side that connected
  std::uint64_t offset = 0;
};

struct Reply {
  std::uint32_t verdict = 0;
  std::array<std::byte, kHeaderBytes + kMacSlotBytes> data{};
};

// How the waiter for a reply sleeps, and so how the daemon wakes it.
inline constexpr std::uint32_t kAwake = 0;
inline constexpr std::uint32_t kOnFutex = 1;   // at reply.sequence
inline constexpr std::uint32_t kOnSocket = 2;  // the daemon sends a byte

struct alignas(64) RequestHalf {
  std::atomic<std::uint32_t> sequence;  // written last; that of the request
  std::atomic<std::uint32_t> sleeping;  // how the waiter for the reply sleeps: kAwake and so on
  Request body;
};
struct alignas(64) ReplyHalf {
  std::atomic<std::uint32_t> sequence;  // written last; a futex
  Reply body;
};
// kSeveral: limit of the requests, which follow each other without gaps, as do the replies.
inline constexpr std::size_t kMostAtOnce = 256;
struct Packed {
  Request request;
  std::span<const std::byte> data;
};
// Takes the next one off `list`; no value if the bytes there are not one.
std::optional<Packed> take_packed(std::span<const std::byte>& list) noexcept;
static_assert(sizeof(RequestHalf) == 64);
static_assert(sizeof(Request) == 32 && sizeof(Reply) == 132, "the bytes of kSeveral");
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

struct RingSlot {
  RequestHalf* request = nullptr;
  ReplyHalf* reply = nullptr;
  std::byte* data = nullptr;
};

// The shape of the memory: a page whose first word tells whether the daemon sleeps, then the slots.
// A slot has a request if its request's sequence is another than that of the daemon's last reply
// there; the reply gets the request's. Before the first both are 0. Slots have no order.
struct RingShape {
  std::uint32_t slots = 8;
  std::uint32_t max_payload_bytes = 1 << 20;

  static constexpr std::uint32_t kMostSlots = 64, kMostPayloadBytes = 1 << 26;
  static constexpr std::size_t kPageBytes = 4096;

  std::size_t max_data_bytes() const { return max_payload_bytes + kRecordOverheadBytes; }
  std::size_t slot_bytes() const {
    const std::size_t used = sizeof(RequestHalf) + sizeof(ReplyHalf) + max_data_bytes();
    return (used + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  std::size_t bytes() const { return kPageBytes + slots * slot_bytes(); }
  bool sound() const {
    return slots >= 1 && slots <= kMostSlots && (slots & (slots - 1)) == 0 &&
           max_payload_bytes >= 1 && max_payload_bytes <= kMostPayloadBytes;
  }

  // `memory`: bytes() bytes, zeroed when new.
  static std::atomic<std::uint32_t>& daemon_sleeps(std::byte* memory) {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory);
  }
  RingSlot slot(std::byte* memory, std::uint32_t number) const {
    std::byte* at = memory + kPageBytes + (number & (slots - 1)) * slot_bytes();
    return {reinterpret_cast<RequestHalf*>(at),
            reinterpret_cast<ReplyHalf*>(at + sizeof(RequestHalf)),
            at + sizeof(RequestHalf) + sizeof(ReplyHalf)};
  }
};

// What the reply key signs. Nothing else that this key might sign begins like this.
std::vector<std::byte> to_be_signed(std::span<const std::byte> record);

// What the daemon of that process number in that PID namespace signs to prove its key to a client
// that has asked with that random number. A client signs for nobody, and knows the process at the
// other end of its socket from the operating system: so who passes the question on to the daemon,
// and the answer back, proves nothing of itself.
std::vector<std::byte> to_be_proven(std::span<const std::byte> nonce, std::uint32_t process,
                                    std::uint64_t pid_namespace);

// The first message on the unix socket, from the daemon, with two descriptors: the memory, and the
// event that wakes the daemon. Afterwards the daemon sends a byte for each reply for which a waiter
// sleeps kOnSocket, unless so many are unread that there is no room. It cuts off a client that
// sends anything.
struct Welcome {
  enum class Answer : std::uint8_t {
    kServed = 0,
    kFull = 1,      // the limit of clients, in all or of this user, is reached; no descriptors
    kStranger = 2,  // this user may use no session
  };
  Answer answer = Answer::kServed;
  RingShape shape;
  std::uint32_t device = 0;  // 0: no sessions of its own
  std::uint64_t epoch = 0;
};
inline constexpr std::size_t kWelcomeBytes = 64;
inline constexpr std::size_t kWelcomeDescriptors = 2;
std::array<std::byte, kWelcomeBytes> encode(const Welcome& welcome) noexcept;
// No value if this is not such a message of this version.
std::optional<Welcome> decode_welcome(std::span<const std::byte> message) noexcept;

}  // namespace leat::trusted::detail
