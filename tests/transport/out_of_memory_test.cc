// A message for which there is no memory is an error at this and every later receive: what came
// after it is neither handed out in its place nor taken for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "support/channel_side.h"
#include "support/errors.h"

namespace {

// In this thread such large arrays are not to be had.
constexpr std::size_t kLarge = std::size_t{1} << 20;
thread_local bool scarce = false;

}  // namespace

void* operator new[](std::size_t bytes) {
  if (scarce && bytes >= kLarge) throw std::bad_alloc();
  return ::operator new(bytes);
}
void operator delete[](void* memory) noexcept { ::operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { ::operator delete(memory); }

namespace leat::detail {
namespace {

class OutOfMemory : public ChannelTest {};

INSTANTIATE_TEST_SUITE_P(
    Shm, OutOfMemory,
    testing::Combine(testing::Values(ChannelKind{"ring", "shm"}, ChannelKind{"batched", "shm"},
                                     ChannelKind{"chunked", "shm"}, ChannelKind{"tcp", "tcp"},
                                     ChannelKind{"attested+ring", "shm"}),
                     testing::Values(PeerMode::kThreads)),
    channel_test_name);

TEST_P(OutOfMemory, loses_no_order) {
  // In pieces; but attested+ring gets it in place, and copies it.
  const std::string large(kind().transport == "attested+ring" ? 600'000 : 3'000'000, 'L');
  run(
      [&](ChannelSide& side) {
        // As much of it as there is room for.
        if (side.channel.try_send(std::as_bytes(std::span(large))))
          side.channel.send("in its place");
        side.channel.send("of another context", 1);
        side.peer.tell("sent");
        side.peer.hear();
      },
      [&](ChannelSide& side) {
        side.peer.hear();
        scarce = true;
        EXPECT_THAT(error_of(ErrorCode::kResource, [&] { (void)side.channel.receive(); }),
                    testing::HasSubstr("out of memory"));
        scarce = false;
        for (int i = 0; i < 3; ++i) {
          bool refused = false;
          try {
            refused = !side.channel.try_receive();
          } catch (const Error& error) {
            refused = error.code() == ErrorCode::kResource;
          }
          EXPECT_TRUE(refused) << "handed out " << i;
          EXPECT_THROW((void)side.channel.receive(), Error);
        }
        side.peer.tell("done");
      });
}

}  // namespace
}  // namespace leat::detail
