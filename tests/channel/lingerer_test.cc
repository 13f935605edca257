// Closed channels that are finished in the background.
#include "channel/lingerer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"

namespace leat::detail {
namespace {

// Has something to say until it is let go.
class Lasting : public SilentTransport {
 public:
  bool try_flush() override { return may_end; }
  std::atomic<bool> may_end = false;
};

// Takes another channel with it, as one may that stands on another.
class Standing final : public Lasting {
 public:
  Standing(LoneCore& other, std::atomic<bool>& gone) : other_(other), gone_(gone) {}
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;
  ~Standing() override {
    other_.core->close();
    gone_ = true;
  }

 private:
  LoneCore& other_;
  std::atomic<bool>& gone_;
};

TEST(LingererTest, ChannelThatItFreesMayCloseAnother) {
  auto beneath = std::make_unique<Lasting>();
  Lasting& beneath_lasts = *beneath;
  LoneCore other(std::move(beneath));
  std::atomic<bool> gone = false;
  auto above = std::make_unique<Standing>(other, gone);
  Standing& above_lasts = *above;
  LoneCore first(std::move(above));
  first.core->close();
  ChannelCore::orphan(first.core.release());
  EXPECT_FALSE(gone);
  above_lasts.may_end = true;
  for (const Deadline deadline = hang_deadline(); !gone && !passed(deadline);)
    std::this_thread::yield();
  ASSERT_TRUE(gone) << "the lingerer waits for itself";
  beneath_lasts.may_end = true;
  ChannelCore::orphan(other.core.release());
}

}  // namespace
}  // namespace leat::detail
