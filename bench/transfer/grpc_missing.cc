// In the place of transfer_grpc.cc where gRPC is not installed.
#include <stdexcept>

#include "transfer/ends.h"

namespace leat::bench {
namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error(
      "this leat-bench was built without gRPC. Run cmake/install-packages.sh grpc and build again "
      "with -DLEAT_BENCH_GRPC=ON.");
}

}  // namespace

bool built_with(Carrier carrier) { return carrier != Carrier::kGrpc; }

std::unique_ptr<SendingEnd> make_grpc_sender() { refuse(); }
std::unique_ptr<ReceivingEnd> make_grpc_receiver(const TransferCase&, std::span<std::byte>) {
  refuse();
}

}  // namespace leat::bench
