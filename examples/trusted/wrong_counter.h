// What a liar of the examples runs.
#pragma once

#include <leat/trusted/counter.h>

#include <cstddef>
#include <span>

// Says one more than is true.
class WrongCounter final : public leat::trusted::StateMachine {
 public:
  void execute(std::span<const std::byte> command, leat::trusted::Bytes& output) override {
    leat::trusted::Bytes right;
    counter_.execute(command, right);
    const leat::trusted::Bytes wrong = leat::trusted::CounterMachine::add(
        leat::trusted::CounterMachine::value_of(right).value_or(0) + 1);
    output.insert(output.end(), wrong.begin(), wrong.end());
  }
  void keep() noexcept override { counter_.keep(); }
  void undo() noexcept override { counter_.undo(); }
  void save(leat::trusted::Bytes& state) const override { counter_.save(state); }
  bool load(std::span<const std::byte> state) override { return counter_.load(state); }

 private:
  leat::trusted::CounterMachine counter_;
};
