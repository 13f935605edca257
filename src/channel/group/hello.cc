#include "channel/group/hello.h"

#include <algorithm>
#include <array>

#include "base/wire.h"
#include "leat/group.h"

namespace leat::detail {
namespace {

constexpr std::array<std::byte, 8> kMagic = {std::byte{'l'}, std::byte{'e'}, std::byte{'a'},
                                             std::byte{'t'}, std::byte{'g'}, std::byte{'r'},
                                             std::byte{'p'}, std::byte{'\n'}};
constexpr std::size_t kHelloPadding = 12;
constexpr std::size_t kTextBytes = kGroupAnswerBytes - 24;
constexpr std::uint32_t kWelcome = 0;  // else 1 + an ErrorCode's number

void write_head(WireWriter& writer) {
  writer.bytes(kMagic, kMagic.size());
  writer.number(kGroupVersion);
}

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kProtocol,
              std::string("the first message is not the ") + what + " of a leat group",
              "Connect a GroupMaster and a GroupWorker with each other.");
}

WireReader read_head(std::span<const std::byte> message, std::size_t bytes, const char* what) {
  if (message.size() < kMagic.size() + sizeof kGroupVersion) fail(what);
  WireReader reader(message);
  const auto magic = reader.bytes(kMagic.size());
  if (!std::equal(magic.begin(), magic.end(), kMagic.begin())) fail(what);
  const auto version = reader.number<std::uint32_t>();
  if (version != kGroupVersion)
    throw Error(ErrorCode::kVersion,
                "the peer speaks version " + std::to_string(version) +
                    " of leat's groups, this side version " + std::to_string(kGroupVersion),
                "Use the same leat on both sides.");
  if (message.size() != bytes) fail(what);
  return reader;
}

}  // namespace

std::vector<std::byte> encode(const GroupHello& hello) {
  std::vector<std::byte> message(kGroupHelloBytes);
  WireWriter writer(message);
  write_head(writer);
  writer.number(hello.rank);
  writer.number(hello.size);
  writer.bytes({}, kHelloPadding);
  return message;
}

GroupHello decode_group_hello(std::span<const std::byte> message) {
  WireReader reader = read_head(message, kGroupHelloBytes, "hello");
  GroupHello hello;
  hello.rank = reader.number<std::uint32_t>();
  hello.size = reader.number<std::uint32_t>();
  if (!reader.zeros(kHelloPadding) || (hello.rank != kAnyRank && hello.rank >= kMaxWorkers) ||
      hello.size > kMaxWorkers)
    fail("hello");
  return hello;
}

std::vector<std::byte> encode(const GroupAnswer& answer) {
  std::vector<std::byte> message(kGroupAnswerBytes);
  WireWriter writer(message);
  write_head(writer);
  writer.number(answer.refused ? 1 + static_cast<std::uint32_t>(answer.code) : kWelcome);
  writer.number(answer.refused ? 0 : answer.rank);
  writer.number(answer.refused ? 0 : answer.size);
  writer.text(answer.refused ? answer.text : "", kTextBytes);
  return message;
}

GroupAnswer decode_group_answer(std::span<const std::byte> message) {
  WireReader reader = read_head(message, kGroupAnswerBytes, "answer");
  GroupAnswer answer;
  const auto code = reader.number<std::uint32_t>();
  answer.rank = reader.number<std::uint32_t>();
  answer.size = reader.number<std::uint32_t>();
  answer.refused = code != kWelcome;
  if (!reader.text(answer.text, kTextBytes)) fail("answer");
  if (answer.refused) {
    if (code > 1 + static_cast<std::uint32_t>(ErrorCode::kSystem) || answer.text.empty() ||
        answer.rank != 0 || answer.size != 0)
      fail("answer");
    answer.code = static_cast<ErrorCode>(code - 1);
  } else if (!answer.text.empty() || answer.size == 0 || answer.size > kMaxWorkers ||
             answer.rank >= answer.size) {
    fail("answer");
  }
  return answer;
}

}  // namespace leat::detail
