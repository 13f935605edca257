// What the trusted systems run: one deterministic state machine, the same at every replica.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "leat/export.h"

namespace leat::trusted {

using Bytes = std::vector<std::byte>;

// The same commands in the same order give the same outputs and the same saved state at every
// replica, whatever the machine, the time or the memory's addresses. Any bytes are a command,
// because clients may be hostile: one that makes no sense has an output that says so, and changes
// nothing.
//
// Owner: its replica. Threads: one at a time. Nothing is thrown but std::bad_alloc.
class LEAT_EXPORT StateMachine {
 public:
  virtual ~StateMachine() = default;

  // Executes a command for now; appends its output, at most kMaxItemBytes, to `output`.
  virtual void execute(std::span<const std::byte> command, Bytes& output) = 0;
  // What was executed since the last keep() stays, or was never there.
  virtual void keep() noexcept = 0;
  virtual void undo() noexcept = 0;

  // The state as bytes, all of it kept; equal states have equal bytes.
  virtual void save(Bytes& state) const = 0;
  // Becomes that state. False, and unchanged: not bytes that save() makes.
  [[nodiscard]] virtual bool load(std::span<const std::byte> state) = 0;
};

// Makes the machine in its first state.
using MachineFactory = std::function<std::unique_ptr<StateMachine>()>;

// Of a command and of an output, and how many commands a client signs at a time.
inline constexpr std::size_t kMaxItemBytes = 16'384;
inline constexpr std::size_t kMaxCommands = 4096;
// Of a client's request, all of it.
inline constexpr std::size_t kMaxRequestBytes = 256 * 1024;

}  // namespace leat::trusted
