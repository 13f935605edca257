// A client stream of gRPC, which is how FATE, the framework that FedRDMA was built into, moves a
// model. Built if gRPC is installed (LEAT_BENCH_GRPC).
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "transfer.grpc.pb.h"
#include "transfer/ends.h"

namespace leat::bench {
namespace {

// gRPC takes messages of at most 4 MiB by default.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

class GrpcSender final : public SendingEnd {
 public:
  void connect(const std::string& address) override {
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    if (!channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::minutes(2)))
      throw std::runtime_error("gRPC cannot connect to " + address);
    stub_ = PieceStream::NewStub(channel_);
  }

  void send(std::span<std::byte> payload) override {
    grpc::ClientContext context;
    Arrived arrived;
    const auto writer = stub_->Transfer(&context, &arrived);
    Piece piece;
    for (std::size_t at = 0; at < payload.size(); at += kPieceBytes) {
      const auto part = payload.subspan(at, std::min(kPieceBytes, payload.size() - at));
      piece.set_payload(part.data(), part.size());
      if (!writer->Write(piece)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) throw std::runtime_error("gRPC: " + status.error_message());
    if (arrived.bytes() != payload.size()) throw std::runtime_error("gRPC: bytes are missing");
  }

  std::string device() const override { return "tcp"; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<PieceStream::Stub> stub_;
};

class GrpcReceiver final : public ReceivingEnd, private PieceStream::Service {
 public:
  GrpcReceiver(const TransferCase& transfer, std::span<std::byte> place)
      : host_(transfer.host), place_(place) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(host_ + ":0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<PieceStream::Service*>(this));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0)
      throw std::runtime_error("gRPC cannot listen at " + host_);
  }
  ~GrpcReceiver() override { server_->Shutdown(); }

  std::string address() const override { return host_ + ":" + std::to_string(port_); }
  void accept() override {}  // gRPC's own threads do

  std::span<const std::byte> receive() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > taken_; });
    ++taken_;
    return place_;
  }

 private:
  grpc::Status Transfer(grpc::ServerContext*, grpc::ServerReader<Piece>* reader,
                        Arrived* answer) override {
    Piece piece;
    std::size_t at = 0;
    while (reader->Read(&piece)) {
      const std::string& payload = piece.payload();
      if (payload.size() > place_.size() - at)
        return {grpc::StatusCode::OUT_OF_RANGE, "more bytes than a transfer has"};
      std::memcpy(place_.data() + at, payload.data(), payload.size());
      at += payload.size();
    }
    if (at != place_.size()) return {grpc::StatusCode::DATA_LOSS, "the stream ended early"};
    answer->set_bytes(at);
    const std::lock_guard lock(mutex_);
    ++arrived_;
    changed_.notify_one();
    return grpc::Status::OK;
  }

  const std::string host_;
  const std::span<std::byte> place_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t arrived_ = 0;
  std::uint64_t taken_ = 0;
  std::unique_ptr<grpc::Server> server_;  // last: its threads use all of the above
};

}  // namespace

bool built_with(Carrier) { return true; }

std::unique_ptr<SendingEnd> make_grpc_sender() { return std::make_unique<GrpcSender>(); }
std::unique_ptr<ReceivingEnd> make_grpc_receiver(const TransferCase& transfer,
                                                 std::span<std::byte> place) {
  return std::make_unique<GrpcReceiver>(transfer, place);
}

}  // namespace leat::bench
