// Requests to leat-attestd: what a client may have written into the ring, one after another.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "attestd/requests.h"
#include "fuzz/input.h"
#include "fuzz/property.h"
#include "support/channel_side.h"

namespace {

using leat::attestd::AccessRules;
using leat::attestd::Holdings;
using leat::attestd::Requests;
using leat::detail::require;
using namespace leat::trusted;

// With a key file, a pair, and a session that this user may not use.
const Holdings& holdings() {
  static const Holdings* made = [] {
    auto* holdings = new Holdings;
    holdings->take_key_file(leat::detail::channel_key_file());
    holdings->begin(1, 1);
    std::array<std::byte, 32> key{};
    for (const std::uint32_t id : {1U, 2U}) {
      key[0] = static_cast<std::byte>(id);
      holdings->provision({.id = id, .role = Role::kPair, .peer = 2, .key = key});
    }
    holdings->enable();
    return holdings;
  }();
  return *made;
}

const AccessRules& rules() {
  static const AccessRules* made = [] {
    auto* rules = new AccessRules;
    rules->add("7:0,1");
    return rules;
  }();
  return *made;
}

bool is(const detail::Request& request, detail::Operation operation) {
  return request.operation == static_cast<std::uint8_t>(operation);
}

bool attests_with_device(const detail::Request& request) {
  return request.kernel == detail::kDeviceKernel && is(request, detail::Operation::kAttest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  leat::detail::Input input(data, size);
  Requests requests(holdings(), rules(), 7, 2);
  const auto forbidden_before = holdings().device()->counters(2, 0);
  std::uint64_t attested = holdings().device()->counters(1, 0)->next_sent;
  std::array<std::byte, 4 * sizeof(detail::Reply)> replies;
  for (int i = 0; i < 32 && !input.empty(); ++i) {
    const auto request = input.next<detail::Request>();
    std::vector<std::byte> bytes(input.next<std::uint8_t>());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(input.next<std::uint8_t>());
    const detail::Reply reply = requests.answer(request, bytes, replies);
    require(reply.verdict <= static_cast<std::uint32_t>(Verdict::kUnavailable),
            "every request is answered with a verdict");
    const bool ok = reply.verdict == static_cast<std::uint32_t>(Verdict::kOk);
    require(ok || std::ranges::all_of(reply.data, [](std::byte b) { return b == std::byte{0}; }),
            "a refusal says nothing else");
    if (ok && is(request, detail::Operation::kSeveral)) {
      std::span<const std::byte> list = bytes, answers = replies;
      while (const auto packed = detail::take_packed(list)) {
        detail::Reply answer;
        std::memcpy(&answer, answers.data(), sizeof answer);
        answers = answers.subspan(sizeof answer);
        if (answer.verdict == 0 && attests_with_device(packed->request)) ++attested;
      }
      require(list.empty(), "all of a list is answered");
    } else if (ok && attests_with_device(request)) {
      ++attested;
    }
    require(holdings().device()->counters(1, 0)->next_sent == attested,
            "a counter is spent for an attestation and for nothing else");
  }
  require(holdings().device()->counters(2, 0)->next_sent == forbidden_before->next_sent,
          "a session of others is not attested on");
  return 0;
}
