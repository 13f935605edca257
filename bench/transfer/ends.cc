#include "transfer/ends.h"

#include <unistd.h>

#include <stdexcept>

#include "bounds/plain_tcp.h"
#include "confirm/star.h"
#include "leat/leat.h"

namespace leat::bench {
namespace {

constexpr std::byte kWord{1};

// --- transport chunked

Options channel_options(const TransferCase& transfer) {
  Options options = lane_options(transfer.device, "chunked");
  options.timeout.reset();  // the limit of the whole run is the limit
  options.chunked_mode = transfer.carrier == Carrier::kHeader ? "header" : "inplace";
  options.chunked_window = transfer.carrier == Carrier::kAuto ? "auto" : "1";
  options.chunked_chunk_bytes = transfer.chunk_bytes;
  options.chunked_link_enable = transfer.link_enable;
  options.chunked_region_bytes = transfer.bytes;  // one region holds a transfer
  options.chunked_region_count = 2;
  options.max_message_bytes = transfer.bytes;
  return options;
}

// Whose queue pair has failed is answered meanwhile.
void wait_for_end(Channel& channel) {
  while (channel.receive()) {
  }
}

class ChannelSender final : public SendingEnd {
 public:
  explicit ChannelSender(const TransferCase& transfer) : options_(channel_options(transfer)) {}

  void connect(const std::string& address) override {
    channel_ = std::make_unique<Channel>(Channel::connect(address, options_));
  }
  void send(std::span<std::byte> payload) override {
    channel_->send(payload);
    if (!channel_->receive()) throw std::runtime_error("the receiver ended early");
  }
  std::string device() const override { return channel_->device(); }
  std::uint64_t resumes() const override { return channel_->stats().resumes; }
  void stay() override { wait_for_end(*channel_); }

 private:
  const Options options_;
  std::unique_ptr<Channel> channel_;
};

class ChannelReceiver final : public ReceivingEnd {
 public:
  explicit ChannelReceiver(const TransferCase& transfer)
      : listener_(transfer.host + ":0", channel_options(transfer)) {}

  std::string address() const override { return listener_.address(); }
  void accept() override { channel_ = std::make_unique<Channel>(listener_.accept()); }
  std::span<const std::byte> receive() override {
    message_.release();
    message_ = channel_->receive();
    if (!message_) throw std::runtime_error("the sender ended early");
    channel_->send({&kWord, 1});
    // A path that is cut now may have lost the word: only a caller of leat sends it again.
    channel_->flush();
    return message_.bytes();
  }
  void stay() override { wait_for_end(*channel_); }

 private:
  Listener listener_;
  std::unique_ptr<Channel> channel_;
  Message message_;
};

// --- plain TCP

class TcpSender final : public SendingEnd {
 public:
  void connect(const std::string& address) override {
    connection_ = std::make_unique<TcpConnection>(TcpConnection::connect(address));
  }
  void send(std::span<std::byte> payload) override {
    connection_->write_all(payload);
    std::byte word{};
    if (!connection_->read_all({&word, 1})) throw std::runtime_error("the receiver ended early");
  }
  std::string device() const override { return "tcp"; }

 private:
  std::unique_ptr<TcpConnection> connection_;
};

class TcpReceiver final : public ReceivingEnd {
 public:
  TcpReceiver(const TransferCase& transfer, std::span<std::byte> place)
      : listener_(transfer.host), place_(place) {}

  std::string address() const override { return listener_.address(); }
  void accept() override { connection_ = std::make_unique<TcpConnection>(listener_.accept()); }
  std::span<const std::byte> receive() override {
    if (!connection_->read_all(place_)) throw std::runtime_error("the sender ended early");
    connection_->write_all({&kWord, 1});
    return place_;
  }

 private:
  TcpListener listener_;
  std::span<std::byte> place_;
  std::unique_ptr<TcpConnection> connection_;
};

}  // namespace

void SendingEnd::stay() { pause(); }
void ReceivingEnd::stay() { pause(); }

const char* name_of(Carrier carrier) {
  switch (carrier) {
    case Carrier::kRaw:
      return "raw";
    case Carrier::kHeader:
      return "header";
    case Carrier::kInPlace:
      return "inplace";
    case Carrier::kAuto:
      return "auto";
    case Carrier::kTcp:
      return "tcp";
    case Carrier::kGrpc:
      return "grpc";
  }
  return "?";
}

const char* title_of(Carrier carrier) {
  switch (carrier) {
    case Carrier::kRaw:
      return "one RDMA write of all";
    case Carrier::kHeader:
      return "chunked, header, window=1";
    case Carrier::kInPlace:
      return "chunked, inplace, window=1";
    case Carrier::kAuto:
      return "chunked, inplace, window=auto";
    case Carrier::kTcp:
      return "plain TCP";
    case Carrier::kGrpc:
      return "gRPC streaming";
  }
  return "?";
}

bool needs_place(Carrier carrier) { return carrier == Carrier::kTcp || carrier == Carrier::kGrpc; }

std::unique_ptr<SendingEnd> make_channel_sender(const TransferCase& transfer) {
  return std::make_unique<ChannelSender>(transfer);
}
std::unique_ptr<ReceivingEnd> make_channel_receiver(const TransferCase& transfer) {
  return std::make_unique<ChannelReceiver>(transfer);
}
std::unique_ptr<SendingEnd> make_tcp_sender() { return std::make_unique<TcpSender>(); }
std::unique_ptr<ReceivingEnd> make_tcp_receiver(const TransferCase& transfer,
                                                std::span<std::byte> place) {
  return std::make_unique<TcpReceiver>(transfer, place);
}

std::unique_ptr<SendingEnd> make_sending_end(const TransferCase& transfer) {
  switch (transfer.carrier) {
    case Carrier::kRaw:
      return make_raw_sender(transfer);
    case Carrier::kTcp:
      return make_tcp_sender();
    case Carrier::kGrpc:
      return make_grpc_sender();
    default:
      return make_channel_sender(transfer);
  }
}

std::unique_ptr<ReceivingEnd> make_receiving_end(const TransferCase& transfer,
                                                 std::span<std::byte> place) {
  switch (transfer.carrier) {
    case Carrier::kRaw:
      return make_raw_receiver(transfer);
    case Carrier::kTcp:
      return make_tcp_receiver(transfer, place);
    case Carrier::kGrpc:
      return make_grpc_receiver(transfer, place);
    default:
      return make_channel_receiver(transfer);
  }
}

}  // namespace leat::bench
