// Messages between the processes of a training, in stages and words.
#pragma once

#include <cstddef>
#include <span>

#include "engine.h"
#include "ring.h"

namespace training {

// In each stage, the words from one process to another form a sequence: they are received in the
// order in which they were sent, cut as the receiver likes. How many there are is known before the
// run (plan.h), and a stage lasts until all of them were received.
// Any amount may be sent before anything is received. Owner and thread: one engine's. Errors: an
// exception if another process went away; the exchange is of no use after that.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void begin(const Stage& stage) = 0;
  virtual void end() = 0;

  // Room for the next words to `peer`, to be filled and then sent by commit.
  virtual std::span<Word> reserve(unsigned peer, std::size_t words) = 0;
  virtual void commit(unsigned peer) = 0;
  // The next words from `peer`; valid until end(). Blocks.
  virtual std::span<const Word> receive(unsigned peer, std::size_t words) = 0;
};

}  // namespace training
