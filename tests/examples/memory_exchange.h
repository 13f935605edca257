// The processes of a training as threads of one: their messages go through queues, and are kept.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "secure_training/exchange.h"
#include "secure_training/multiplication.h"
#include "secure_training/session.h"

namespace training {

// What connects three exchanges.
class Wires {
 public:
  // Blocks; throws once `break_all` was called.
  Words take(unsigned sender, unsigned receiver, std::size_t words);
  void put(unsigned sender, unsigned receiver, const Words& words);
  void break_all();

  // Everything that went this way.
  const Words& sent(unsigned sender, unsigned receiver) const;

 private:
  struct Wire {
    Words words;
    std::size_t taken = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::array<Wire, kProcesses>, kProcesses> wires_;
  bool broken_ = false;
};

class MemoryExchange final : public Exchange {
 public:
  MemoryExchange(Wires& wires, unsigned self) : wires_(wires), self_(self) {}

  void begin(const Stage&) override {}
  void end() override { received_.clear(); }
  std::span<Word> reserve(unsigned peer, std::size_t words) override;
  void commit(unsigned peer) override;
  std::span<const Word> receive(unsigned peer, std::size_t words) override;

 private:
  Wires& wires_;
  const unsigned self_;
  std::array<Words, kProcesses> reserved_;
  std::list<Words> received_;  // stay until end()
};

// A piece of a training: takes and gives matrices as the engine has them.
using Protocol = std::function<std::vector<Matrix>(Engine&, std::vector<Matrix>)>;

struct ProtocolRun {
  std::vector<Matrix> results;  // put together
  std::unique_ptr<Wires> wires = std::make_unique<Wires>();
};

// Runs it at the dealer, then at all parties, on shares of `inputs`: random ones, or the values and
// zeros, where nothing but the protocol hides anything. `samples`, the last input if there are any,
// are the dealer's own: it has the numbers.
enum class Shares { kRandom, kBare };
ProtocolRun run_protocol(unsigned parties, std::vector<Matrix> inputs, const Protocol& protocol,
                         std::uint64_t seed = 1, Shares shares = Shares::kRandom,
                         const Matrix& samples = {});

}  // namespace training
