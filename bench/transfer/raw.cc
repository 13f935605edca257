// One RDMA write of a whole buffer, as a program writes it that knows nothing of the path: what
// FedRDMA begins with. On the verbs of leat, without its transports.
#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "bounds/plain_tcp.h"
#include "transfer/ends.h"
#include "verbs/table.h"

namespace leat::bench {
namespace {

using namespace detail;

constexpr auto kConnectLimit = std::chrono::minutes(2);

// What the receiver tells the sender over TCP.
struct RawOffer {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t blob_bytes = 0;
  std::array<std::byte, kMaxOfferBytes> blob{};
};

// The device on the way to `peer`, or, if that is empty, on the way from `local`.
std::unique_ptr<Device> open_for(const TransferCase& transfer, const std::string& local,
                                 const std::string& peer) {
  std::string name = transfer.device.empty() ? "shm" : transfer.device;
  if (name == "tcp") throw std::runtime_error("a raw write needs a device, not tcp");
  const DeviceRow* kind = find_device_row(name);
  if (kind != nullptr && kind->find != nullptr && name == kind->kind) {
    const RoutedDevice found = kind->find({local, peer});
    if (found.name.empty()) throw std::runtime_error(found.why_not);
    name = found.name;
  }
  return open_device(name, peer);
}

class RawSender final : public SendingEnd {
 public:
  explicit RawSender(const TransferCase& transfer)
      : device_(open_for(transfer, "", transfer.host)) {}

  void connect(const std::string& address) override {
    control_ = std::make_unique<TcpConnection>(TcpConnection::connect(address));
    RawOffer offer;
    if (!control_->read_all(std::as_writable_bytes(std::span(&offer, 1))) ||
        offer.blob_bytes > offer.blob.size())
      throw std::runtime_error("the receiver ended early");
    target_ = {offer.address, offer.bytes, offer.key};
    queue_pair_ = device_->connect(std::span(offer.blob).first(offer.blob_bytes), {},
                                   deadline_after(kConnectLimit));
  }

  void send(std::span<std::byte> payload) override {
    // Once, as a program keeps what it sends in memory of the device.
    if (source_ == nullptr) {
      source_ = device_->allocate(payload.size(), kLocalOnly);
      std::ranges::copy(payload, source_->memory().begin());
    }
    const std::size_t most = device_->limits().max_request_bytes;
    std::size_t posted = 0;
    while (posted < payload.size()) {
      SendRequest request;
      request.local = source_->memory().data() + posted;
      request.local_key = source_->local_key();
      request.bytes = std::min(payload.size() - posted, most);
      request.signaled = posted + request.bytes == payload.size();
      request.remote_address = target_.address + posted;
      request.remote_key = target_.key;
      if (queue_pair_->post_send({&request, 1}) == 1) posted += request.bytes;
    }
    Completion completion;
    while (queue_pair_->poll_sends({&completion, 1}) == 0) {
    }
    if (completion.status != CompletionStatus::kSuccess)
      throw std::runtime_error(std::string("the write failed: ") + to_string(completion.status));
    std::byte word{1};
    control_->write_all({&word, 1});
    if (!control_->read_all({&word, 1})) throw std::runtime_error("the receiver ended early");
  }

  std::string device() const override { return device_->info().name; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<TcpConnection> control_;
  RemoteRegion target_;
  std::unique_ptr<QueuePair> queue_pair_;
  std::unique_ptr<MemoryRegion> source_;
};

class RawReceiver final : public ReceivingEnd {
 public:
  explicit RawReceiver(const TransferCase& transfer)
      : transfer_(transfer), listener_(transfer.host) {}

  std::string address() const override { return listener_.address(); }

  void accept() override {
    control_ = std::make_unique<TcpConnection>(listener_.accept());
    device_ = open_for(transfer_, transfer_.host, "");
    region_ = device_->allocate(transfer_.bytes, kRemoteWrite);
    const std::unique_ptr<Offer> offered = device_->offer({}, transfer_.host);
    const std::vector<std::byte> blob = offered->blob();
    RawOffer offer;
    offer.address = region_->remote().address;
    offer.bytes = region_->remote().bytes;
    offer.key = region_->remote().key;
    offer.blob_bytes = static_cast<std::uint32_t>(blob.size());
    std::memcpy(offer.blob.data(), blob.data(), blob.size());
    control_->write_all(std::as_bytes(std::span(&offer, 1)));
    queue_pair_ = offered->accept(deadline_after(kConnectLimit), -1);
  }

  std::span<const std::byte> receive() override {
    std::byte word{};
    if (!control_->read_all({&word, 1})) throw std::runtime_error("the sender ended early");
    control_->write_all({&word, 1});
    return region_->memory().first(transfer_.bytes);
  }

 private:
  const TransferCase transfer_;
  TcpListener listener_;
  std::unique_ptr<TcpConnection> control_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<MemoryRegion> region_;
  std::unique_ptr<QueuePair> queue_pair_;
};

}  // namespace

std::unique_ptr<SendingEnd> make_raw_sender(const TransferCase& transfer) {
  return std::make_unique<RawSender>(transfer);
}
std::unique_ptr<ReceivingEnd> make_raw_receiver(const TransferCase& transfer) {
  return std::make_unique<RawReceiver>(transfer);
}

}  // namespace leat::bench
