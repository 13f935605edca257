// A transport that takes nothing and has nothing: doubles override what they are about.
#pragma once

#include <sys/eventfd.h>

#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "transport/transport.h"

namespace leat::detail {

// No event ever comes, so a waiter must look again by itself.
class SilentTransport : public Transport {
 public:
  explicit SilentTransport(StreamUse stream = StreamUse::kLifeline) : Transport(1) {
    set_in_place(1, 1);
    facts_.stream = stream;
    facts_.send_event_fd = facts_.receive_event_fd = event_.get();
  }
  std::vector<std::byte> setup() const override { return {}; }
  void start(std::span<const std::byte>) override {}
  SendResult try_send(std::span<const std::byte>, Context) override { return SendResult::kNoRoom; }
  std::span<std::byte> try_reserve(std::size_t, Context) override { return {}; }
  SendResult try_commit(std::size_t) override { return SendResult::kNoRoom; }
  void abandon(Context) noexcept override {}
  bool try_end() override { return true; }
  bool try_flush() override { return true; }
  ReceiveResult try_receive(Context, Delivery&) override { return ReceiveResult::kNothing; }
  void release(Delivery&) noexcept override {}
  void arm(Side) override {}
  Outlook outlook(Side side, Look) const override {
    return {.comes = side == Side::kSend ? Outlook::Comes::kSilently : Outlook::Comes::kWithEvent};
  }
  std::string describe() const override { return "silent"; }
  void add_stats(Stats&) const override {}

 private:
  const Fd event_{check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")};
};

// The peer's end came before it went, but shows after so many looks.
class LateEnd final : public SilentTransport {
 public:
  ReceiveResult try_receive(Context, Delivery&) override {
    return ++looks_ > 40 ? ReceiveResult::kEnd : ReceiveResult::kNothing;
  }

 private:
  int looks_ = 0;
};

}  // namespace leat::detail
