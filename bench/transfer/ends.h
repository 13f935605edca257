// The two ends of what leat-bench transfer compares: each carrier moves a buffer from one process
// to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace leat::bench {

enum class Carrier { kRaw, kHeader, kInPlace, kAuto, kTcp, kGrpc };

// In the order of the table.
inline constexpr Carrier kCarriers[] = {Carrier::kRaw,  Carrier::kHeader, Carrier::kInPlace,
                                        Carrier::kAuto, Carrier::kTcp,    Carrier::kGrpc};
const char* name_of(Carrier carrier);
// For people: "one RDMA write", "chunked, inplace, window=1".
const char* title_of(Carrier carrier);
// Whether this program was built with it.
bool built_with(Carrier carrier);

// One run of one carrier. Plain value.
struct TransferCase {
  Carrier carrier = Carrier::kAuto;
  std::size_t bytes = 0;
  std::size_t chunk_bytes = std::size_t{4} << 20;
  std::string link_enable = "auto";
  std::string device;  // as leat names it; "": the best for this host
  std::string host;    // at which the receiver listens
};

// The end that sends. Calls block, and throw if the transfer cannot be finished.
class SendingEnd {
 public:
  virtual ~SendingEnd() = default;
  virtual void connect(const std::string& address) = 0;
  // Returns when the receiver has it all. The same memory each time.
  virtual void send(std::span<std::byte> payload) = 0;
  virtual std::string device() const = 0;              // "shm", "ib:rxe0", "tcp"
  virtual std::uint64_t resumes() const { return 0; }  // queue pairs re-established
  // Does for the receiver what it may still need of us; for good.
  virtual void stay();
};

// The end that receives.
class ReceivingEnd {
 public:
  virtual ~ReceivingEnd() = default;
  virtual std::string address() const = 0;  // for SendingEnd::connect
  virtual void accept() = 0;
  // The next transfer, and the sender knows that it is here. Its bytes stay until the next call of
  // anything.
  virtual std::span<const std::byte> receive() = 0;
  // As of the sender.
  virtual void stay();
};

std::unique_ptr<SendingEnd> make_sending_end(const TransferCase& transfer);
// `place`: where bytes go that do not arrive in place; as long as the transfer.
std::unique_ptr<ReceivingEnd> make_receiving_end(const TransferCase& transfer,
                                                 std::span<std::byte> place);
// Whether a receiving end of that carrier needs `place`.
bool needs_place(Carrier carrier);

// --- of each kind; make_sending_end and make_receiving_end choose
std::unique_ptr<SendingEnd> make_channel_sender(const TransferCase& transfer);
std::unique_ptr<ReceivingEnd> make_channel_receiver(const TransferCase& transfer);
std::unique_ptr<SendingEnd> make_raw_sender(const TransferCase& transfer);
std::unique_ptr<ReceivingEnd> make_raw_receiver(const TransferCase& transfer);
std::unique_ptr<SendingEnd> make_tcp_sender();
std::unique_ptr<ReceivingEnd> make_tcp_receiver(const TransferCase& transfer,
                                                std::span<std::byte> place);
std::unique_ptr<SendingEnd> make_grpc_sender();
std::unique_ptr<ReceivingEnd> make_grpc_receiver(const TransferCase& transfer,
                                                 std::span<std::byte> place);

}  // namespace leat::bench
