// What a peer says on the TCP connection while a queue pair is re-established. The first byte says
// which side we are; the rest is all that the peer ever sends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fuzz/property.h"
#include "leat/error.h"
#include "support/scripted_device.h"
#include "transport/chunked/resumer.h"

namespace {

using namespace leat::detail;

class ScriptedStream final : public Stream {
 public:
  explicit ScriptedStream(std::span<const std::byte> input) : input_(input) {}
  std::optional<std::size_t> try_read(std::span<std::byte> bytes) override {
    const std::size_t count = std::min(bytes.size(), input_.size());
    if (count != 0) std::memcpy(bytes.data(), input_.data(), count);
    input_ = input_.subspan(count);
    return count;
  }
  std::optional<std::size_t> try_write(std::span<const std::byte> bytes) override {
    return bytes.size();
  }
  bool peer_closed() noexcept override { return input_.empty(); }
  Lifeline look_as_lifeline() noexcept override {
    return input_.empty() ? Lifeline::kClosed : Lifeline::kSpoke;
  }
  int fd() const override { return -1; }
  bool encrypted() const override { return false; }
  void abort() noexcept override {}

  std::size_t left() const { return input_.size(); }

 private:
  std::span<const std::byte> input_;
};

constexpr std::size_t kFrameBytes = 288;  // docs/wire_format.md

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool active = data[0] % 2 != 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  ScriptedStream stream(input);
  bool connected = false;
  Script script;
  script.connecting = [&](std::span<const std::byte> blob) {
    require(blob.size() <= kMaxOfferBytes, "an offer does not exceed its limit");
    // As a device does if its peer did not make the offer.
    if (!blob.empty() && blob[0] == std::byte{0xff})
      throw leat::Error(leat::ErrorCode::kProtocol, "an offer of nonsense");
    connected = true;
  };
  const auto device = scripted_device(script);
  try {
    Resumer resumer(stream, active, {});
    // The deadline has passed: no second attempt, which would come after a pause.
    const Resumer::Outcome outcome = resumer.run(*device, 7, {}, Clock::now());
    require(outcome.queue_pair != nullptr && connected, "a side that resumed has a queue pair");
    require(stream.left() + 3 * kFrameBytes == input.size(), "three frames were read");
    std::uint64_t arrivals = 0;
    std::memcpy(&arrivals, input.data() + 16, sizeof arrivals);
    require(outcome.peer_arrivals == arrivals, "the peer's number is the one that it said");
  } catch (const leat::Error& error) {
    require(error.what()[0] != '\0', "an error says what is wrong");
  }
  return 0;
}
