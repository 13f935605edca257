// What leat-attestd answers to several requests in one: each by itself, or none if the list is
// malformed.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "attest/kernel_ring.h"
#include "attestd/requests.h"

namespace leat::attestd {
namespace {

using namespace trusted;
using trusted::detail::kMostAtOnce;
using trusted::detail::Operation;
using trusted::detail::Reply;
using trusted::detail::Request;

using Bytes = std::vector<std::byte>;

void append(Bytes& list, const Request& request, std::span<const std::byte> data) {
  const auto head = std::as_bytes(std::span(&request, 1));
  list.insert(list.end(), head.begin(), head.end());
  list.insert(list.end(), data.begin(), data.end());
}

Request attest(std::size_t bytes) {
  return {.operation = static_cast<std::uint8_t>(Operation::kAttest),
          .kind = static_cast<std::uint8_t>(Kind::kSend),
          .session = 1,
          .bytes = static_cast<std::uint32_t>(bytes)};
}

// A device with one session, and a client of its.
class Several : public testing::Test {
 protected:
  Several() : requests_(made(holdings_), rules_, 0, 1) {}

  Verdict ask(const Bytes& list, std::span<std::byte> replies) {
    const Request several{.operation = static_cast<std::uint8_t>(Operation::kSeveral),
                          .bytes = static_cast<std::uint32_t>(list.size())};
    return static_cast<Verdict>(requests_.answer(several, list, replies).verdict);
  }
  static Reply reply(std::span<const std::byte> replies, std::size_t index) {
    Reply reply;
    std::memcpy(&reply, replies.data() + index * sizeof reply, sizeof reply);
    return reply;
  }
  std::uint64_t attested() const { return holdings_.device()->counters(1, 0)->next_sent; }

 private:
  static const Holdings& made(Holdings& holdings) {
    const std::array<std::byte, kMinKeyBytes> key{};
    holdings.begin(1, 1);
    holdings.provision({.id = 1, .role = Role::kLog, .peer = 0, .key = key});
    holdings.enable();
    return holdings;
  }

  Holdings holdings_;
  const AccessRules rules_;
  Requests requests_;
};

TEST_F(Several, each_is_answered_by_itself) {
  const Bytes payload(300);
  Bytes list;
  append(list, attest(payload.size()), payload);
  Request unknown = attest(0);
  unknown.session = 2;
  append(list, unknown, {});
  Request ill = attest(1);
  ill.active = 1;  // no field of an attestation
  append(list, ill, Bytes(1));
  append(list, attest(0), {});
  Bytes replies(4 * sizeof(Reply));
  ASSERT_EQ(ask(list, replies), Verdict::kOk);
  const Verdict expected[] = {Verdict::kOk, Verdict::kSession, Verdict::kFormat, Verdict::kOk};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(reply(replies, i).verdict, static_cast<std::uint32_t>(expected[i])) << i;
  EXPECT_EQ(attested(), 2U);
  // Of an empty payload the proof is the record.
  EXPECT_EQ(read_header(reply(replies, 3).data).value_or(RecordHeader{}).counter, 1U);
}

// Lengths that are too long, lists that end within a request, more of them than may be, lists
// within lists, other operations, replies that have no room: nothing is done, however good the
// first of them is.
TEST_F(Several, of_an_impossible_list_nothing_is_done) {
  const auto of_operation = [](Operation operation) {
    return Request{.operation = static_cast<std::uint8_t>(operation)};
  };
  const std::pair<const char*, std::function<void(Bytes&)>> lists[] = {
      {"a length beyond the end", [](Bytes& list) { append(list, attest(1), {}); }},
      {"the largest length", [](Bytes& list) { append(list, attest(0xffff'ffff), Bytes(100)); }},
      {"half a request", [](Bytes& list) { list.resize(list.size() + sizeof(Request) / 2); }},
      {"one byte more", [](Bytes& list) { list.resize(list.size() + 1, std::byte{1}); }},
      {"more than may be",
       [](Bytes& list) {
         for (std::size_t i = 0; i < kMostAtOnce; ++i) append(list, attest(0), {});
       }},
      {"a list in it", [&](Bytes& list) { append(list, of_operation(Operation::kSeveral), {}); }},
      {"a session opened", [&](Bytes& list) { append(list, of_operation(Operation::kOpen), {}); }},
      {"a signature", [&](Bytes& list) { append(list, of_operation(Operation::kSign), {}); }},
      {"no operation", [](Bytes& list) { append(list, Request{}, {}); }}};
  Bytes replies((kMostAtOnce + 1) * sizeof(Reply), std::byte{0xee});
  const Bytes untouched = replies;
  for (const auto& [what, add] : lists) {
    Bytes list;
    append(list, attest(3), Bytes(3));
    add(list);
    EXPECT_EQ(ask(list, replies), Verdict::kFormat) << what;
  }
  Bytes two;
  append(two, attest(0), {});
  append(two, attest(0), {});
  EXPECT_EQ(ask(two, std::span(replies).first(2 * sizeof(Reply) - 1)), Verdict::kFormat);
  EXPECT_EQ(replies, untouched);
  EXPECT_EQ(attested(), 0U);
  EXPECT_EQ(ask(two, replies), Verdict::kOk);
  EXPECT_EQ(attested(), 2U);
}

}  // namespace
}  // namespace leat::attestd
