// What the tests of emp.h share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "adapters/stand_ins/emp_io_channel.h"
#include "leat/adapters/emp.h"
#include "support/channel_side.h"
#include "support/free_port.h"

namespace leat::detail {

using Modern = adapters::EmpChannel<stand_in::IoChannel>;
using Late = adapters::EmpCrtpChannel<stand_in::LateIoChannel>;
using Early = adapters::EmpCrtpChannel<stand_in::EarlyIoChannel>;

template <typename Io>
void send_bytes(Io& io, std::size_t bytes, std::uint64_t seed) {
  const std::vector<std::byte> data = leat::detail::pattern(bytes, seed);
  io.send_data(data.data(), static_cast<int>(bytes));
}

template <typename Io>
void expect_bytes(Io& io, std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  io.recv_data(data.data(), static_cast<int>(bytes));
  leat::detail::expect_pattern(data, seed);
}

class EmpTest : public ChannelTest {
 protected:
  template <typename Io>
  using Body = std::function<void(Peer&, Io&)>;

  // The first side is the server. A side's channel ends when its body returns.
  template <typename Io>
  void run(const Body<Io>& first, const Body<Io>& second,
           SecondEnds second_ends = SecondEnds::kByReturning) const {
    const int port = free_port();
    const std::string host = server_host(kind());
    run_pair(
        mode(),
        [&](Peer& peer) {
          Io io(nullptr, port, true, channel_options(kind()));
          first(peer, io);
        },
        [&](Peer& peer) {
          Io io(host.c_str(), port, true, channel_options(kind()));
          second(peer, io);
        },
        second_ends);
  }
};

// Both sides follow one script: who sends how much, at times with a flush.
template <typename Io>
inline void follow_script(Io& io, bool first) {
  std::mt19937_64 random(17);
  for (std::uint64_t step = 0; step < scaled(400); ++step) {
    const bool first_sends = random() % 2 == 0;
    const std::size_t bytes = random() % 3 == 0 ? random() % 200'000 : random() % 100;
    const bool flushes = random() % 4 == 0;
    if (first_sends == first) {
      send_bytes(io, bytes, step);
      if (flushes) io.flush();
    } else {
      expect_bytes(io, bytes, step);
    }
  }
  io.flush();
}

}  // namespace leat::detail
