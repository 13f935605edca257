// An attested record: bytes from anyone who can send. The attestation kernel accepts none of them.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attest/record.h"
#include "fuzz/property.h"
#include "leat/attest/attestation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::trusted;
  using leat::detail::require;
  static LocalKernel& kernel = [&]() -> LocalKernel& {
    static LocalKernel made(2, 1);
    static const std::vector<std::byte> key(32, std::byte{1});
    made.provision({.id = 1, .peer = 1, .streams = 16, .key = key});
    made.enable();
    return made;
  }();

  const auto record = std::as_bytes(std::span(data, size));
  const auto header = read_header(record);
  if (header) {
    std::array<std::byte, kHeaderBytes> bytes;
    detail::write_header(*header, bytes);
    require(std::equal(bytes.begin(), bytes.end(), record.begin()),
            "a header that is accepted says everything it carries");
    require(payload_of(record).size() == header->payload_bytes, "the payload lies in the record");
  }
  const Kind kind = header ? header->kind : Kind::kSend;
  require(kernel.verify(record, kind) != Verdict::kOk, "nothing is accepted that nobody attested");
  require(kernel.verify_stateless(record, kind) != Verdict::kOk, "nor statelessly");
  require(kernel.counters(1, 0)->next_received == 0, "a refused record changes nothing");
  return 0;
}
