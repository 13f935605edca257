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

// No event ever comes, so who waits for it must look again by itself.
class SilentTransport : public Transport {
 public:
  std::vector<std::byte> setup() const override { return {}; }
  void start(std::span<const std::byte>) override {}
  bool try_send(std::span<const std::byte>, Context) override { return false; }
  std::span<std::byte> try_reserve(std::size_t, Context) override { return {}; }
  bool try_commit(std::size_t) override { return false; }
  void abandon() override {}
  bool try_end() override { return true; }
  bool try_flush() override { return true; }
  bool try_drain() override { return true; }
  ReceiveResult try_receive(Context, Delivery&) override { return ReceiveResult::kNothing; }
  bool pending() const override { return false; }
  void release(Delivery&) noexcept override {}
  void arm(Side) override {}
  int event_fd(Side) const override { return event_.get(); }
  Comes room_comes() const override { return Comes::kSilently; }
  std::size_t max_in_place_bytes(Context) const override { return 1; }
  std::size_t max_message_bytes() const override { return 1; }
  std::string describe() const override { return "silent"; }
  void add_stats(Stats&) const override {}

 private:
  const Fd event_{check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")};
};

}  // namespace leat::detail
