#include "frameworks/protocols.h"

#include <algorithm>
#include <span>
#include <stdexcept>

namespace leat::bench {
namespace {

using Words = std::uint64_t;

// IKNP: for each chunk 127 rows of a bit for each OT, from the receiver of the OTs.
constexpr std::uint64_t kChunkOts = 2048;
constexpr unsigned kRows = 127;
constexpr std::size_t kRowBytes = kChunkOts / 8;
// Ferret: for each tree a block for each level, from the sender, which flushes.
constexpr std::uint64_t kTreeOts = 8192;
constexpr std::size_t kTreeBytes = std::size_t{13} * 16;
// Triples of 32 bits (Gilboa): for each batch the rows of 32 OTs a triple, the choice bits, 8192 at
// a time, and back 4 bytes for each OT.
constexpr std::uint64_t kBatchTriples = 2048;
constexpr std::uint64_t kBatchOts = 32 * kBatchTriples;
constexpr std::size_t kBitsBytes = 1024;

// One side's channel; writes and reads every word.
class Side {
 public:
  Side(Io& io, bool in_place) : io_(io), in_place_(in_place) {}

  void send(std::size_t bytes) {
    const auto count = static_cast<std::int64_t>(bytes);
    void* const place = in_place_ ? io_.send_place(count) : io_.Io::send_place(count);
    for (Words& word : std::span(static_cast<Words*>(place), bytes / sizeof(Words))) {
      word = written_ * 0x9E3779B97F4A7C15 + ++words_written_;
      written_ ^= word;
    }
    io_.send_data(place, count);
  }
  void receive(std::size_t bytes) {
    const auto count = static_cast<std::int64_t>(bytes);
    const void* const view = in_place_ ? io_.receive_view(count) : io_.Io::receive_view(count);
    for (const Words word : std::span(static_cast<const Words*>(view), bytes / sizeof(Words)))
      read_ ^= word;
  }
  void flush() { io_.flush(); }

  // Returns when both sides are here; compares what each has read with what the other has written.
  void finish() {
    io_.send_data(&written_, sizeof written_);
    Words expected = 0;
    io_.recv_data(&expected, sizeof expected);
    if (expected != read_)
      throw std::runtime_error("what was received is not what the peer has sent");
    io_.sync();
  }

 private:
  Io& io_;
  const bool in_place_;
  Words written_ = 0;
  Words words_written_ = 0;
  Words read_ = 0;
};

void play_rows(Side& side, bool sends, std::uint64_t ots) {
  for (std::uint64_t row = 0; row < ots / kChunkOts * kRows; ++row)
    sends ? side.send(kRowBytes) : side.receive(kRowBytes);
  if (sends) side.flush();
}

void play_trees(Side& side, bool sends, std::uint64_t ots) {
  for (std::uint64_t tree = 0; tree < ots / kTreeOts; ++tree) {
    if (sends) {
      side.send(kTreeBytes);
      side.flush();
    } else {
      side.receive(kTreeBytes);
    }
  }
}

void play_triples(Side& side, bool sends_rows, std::uint64_t triples) {
  for (std::uint64_t batch = 0; batch < triples / kBatchTriples; ++batch) {
    play_rows(side, sends_rows, kBatchOts);
    for (std::size_t bits = 0; bits < kBatchOts / 8; bits += kBitsBytes)
      sends_rows ? side.send(kBitsBytes) : side.receive(kBitsBytes);
    if (sends_rows) {
      side.flush();
      side.receive(kBatchOts * 4);
    } else {
      side.send(kBatchOts * 4);
      side.flush();
    }
  }
}

// Shares of one AND gate for each round.
void play_gates(Io& io, bool first, std::uint64_t rounds) {
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const auto mine = static_cast<unsigned char>(2 * round + first);
    unsigned char theirs = 0;
    io.send_data(&mine, 1);
    io.flush();
    io.recv_data(&theirs, 1);
    if (theirs != static_cast<unsigned char>(2 * round + !first))
      throw std::runtime_error("what was received is not what the peer has sent");
  }
}

std::uint64_t unit(Protocol protocol) {
  switch (protocol) {
    case Protocol::kIknp:
      return kChunkOts;
    case Protocol::kFerret:
      return kTreeOts;
    case Protocol::kTriples:
      return kBatchTriples;
    case Protocol::kGates:
      break;
  }
  return 1;
}

}  // namespace

std::uint64_t rounded(Protocol protocol, std::uint64_t count) {
  return std::max<std::uint64_t>(count / unit(protocol), 1) * unit(protocol);
}

void play(Protocol protocol, Io& io, bool first, bool in_place, std::uint64_t count) {
  Side side(io, in_place);
  switch (protocol) {
    case Protocol::kIknp:
      play_rows(side, !first, count);
      break;
    case Protocol::kFerret:
      play_trees(side, first, count);
      break;
    case Protocol::kTriples:
      play_triples(side, !first, count);
      break;
    case Protocol::kGates:
      play_gates(io, first, count);
      break;
  }
  side.finish();
}

}  // namespace leat::bench
