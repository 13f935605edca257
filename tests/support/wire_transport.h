// A transport whose messages stay where a test can do with them what an attacker can.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/parts/remote_reads.h"
#include "transport/transport.h"

namespace leat::detail {

using Bytes = std::vector<std::byte>;

// The memory between two sides, in which a test does what an attacker can do there.
struct Wire {
  struct Item {
    Bytes bytes;
    Context context = 0;
  };
  std::deque<Item> items;
  bool ended = false;
  bool full = false;            // nothing more finds room
  bool refuses_commit = false;  // there was room, but the send queue is full
  bool takes_part = false;      // each commit sends a part, and never the rest
};

// A transport whose messages stay in a Wire until they are taken.
class WireTransport final : public Transport {
 public:
  // `reads`: null, or what reads go by.
  WireTransport(Wire& out, Wire& in, RemoteReads* reads = nullptr)
      : Transport(1 << 20), out_(out), in_(in) {
    set_in_place(4096, 4096);
    facts_.reads = reads;
  }

  std::vector<std::byte> setup() const override { return Bytes(8, std::byte{3}); }
  void start(std::span<const std::byte> peer_setup) override { ASSERT_EQ(peer_setup.size(), 8U); }
  SendResult try_send(std::span<const std::byte> message, Context context) override {
    if (out_.full || out_.refuses_commit) return SendResult::kNoRoom;
    out_.items.push_back({Bytes(message.begin(), message.end()), context});
    return SendResult::kSent;
  }
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override {
    if (out_.full) return {};
    EXPECT_TRUE(reserved_.bytes.empty()) << "one at a time";
    reserved_ = {Bytes(bytes), context};
    return reserved_.bytes;
  }
  SendResult try_commit(std::size_t bytes) override {
    took_part_ = out_.takes_part;
    if (took_part_) return SendResult::kUnderWay;
    if (out_.refuses_commit) return SendResult::kNoRoom;
    EXPECT_EQ(bytes, reserved_.bytes.size());
    out_.items.push_back(std::exchange(reserved_, {}));
    return SendResult::kSent;
  }
  void abandon(Context) noexcept override {
    EXPECT_FALSE(took_part_) << "of what has left already";
    reserved_ = {};
  }
  bool try_end() override { return out_.ended = true; }
  bool try_flush() override { return true; }
  ReceiveResult try_receive(Context context, Delivery& delivery) override {
    for (auto item = in_.items.begin(); item != in_.items.end(); ++item) {
      if (item->context != context) continue;
      delivery.bytes = item->bytes.size();
      delivery.context = context;
      delivery.must_release = true;
      lent_ = std::move(item->bytes);
      delivery.data = lent_.data();
      in_.items.erase(item);
      return ReceiveResult::kMessage;
    }
    return in_.ended ? ReceiveResult::kEnd : ReceiveResult::kNothing;
  }
  // As memory that the peer writes again at once.
  void release(Delivery&) noexcept override {
    std::fill(lent_.begin(), lent_.end(), std::byte{0xee});
    ++released;
  }
  void arm(Side) override {}
  Outlook outlook(Side side, Look) const override {
    return {.soon = side == Side::kReceive && !in_.items.empty()};
  }
  std::string describe() const override { return "wire"; }
  void add_stats(Stats&) const override {}

  int released = 0;

 private:
  Wire& out_;
  Wire& in_;
  Wire::Item reserved_;
  bool took_part_ = false;
  Bytes lent_;
};

}  // namespace leat::detail
