// One node's messages to another, and back, over connections that may be lost: each arrives once
// and in order, as long as both nodes live. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// What each side says when a connection begins. A node that was started again has another life.
struct Resumption {
  std::uint64_t life = 0;
  std::uint64_t peers_life = 0;  // 0: none is known
  std::uint64_t received = 0;    // so many messages of the peer, in that life
  std::uint64_t first = 0;       // earlier messages to the peer are gone
};
std::optional<Resumption> read_resumption(View message);
Bytes write_resumption(const Resumption& resumption);
// kReceived: how many messages.
std::optional<std::uint64_t> read_received(View message);
Bytes write_received(std::uint64_t count);

// Messages are numbered by counting, so nothing is added to them. They are kept until the peer has
// said that it has received them.
class Courier {
 public:
  // `life`: of this node, random and not 0.
  Courier(std::uint64_t life, std::size_t max_bytes) : life_(life), max_bytes_(max_bytes) {}

  // Keeps a message to the peer. Returns false if more bytes wait than may: then all were dropped,
  // and the connection must begin again, so that the peer hears of it.
  [[nodiscard]] bool keep(View message);

  // --- a connection, in this order
  Resumption resumption() const;
  // Takes what the peer says. Returns false if no correct peer says that.
  [[nodiscard]] bool resume(const Resumption& theirs);
  // The next message to send; no value if there is none.
  std::optional<View> next();
  // A message has come. Returns how many that makes, if the peer should hear it now.
  std::optional<std::uint64_t> count_received(std::size_t bytes);
  void on_received(std::uint64_t count);

 private:
  const std::uint64_t life_;
  const std::size_t max_bytes_;
  std::uint64_t peers_life_ = 0;
  std::uint64_t received_ = 0, acknowledged_ = 0;  // by this node
  std::size_t unacknowledged_bytes_ = 0;
  std::deque<Bytes> kept_;
  std::uint64_t first_ = 0;  // the number of the first of them
  std::size_t bytes_ = 0;
  std::uint64_t next_ = 0;  // to be sent
};

}  // namespace leat::trusted::detail
