// What trusted systems replicate: one deterministic state machine, the same at every replica.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "leat/cxx20.h"
#include "leat/export.h"

namespace leat::trusted {

using Bytes = std::vector<std::byte>;

// The same commands in the same order give the same outputs and the same saved state at every
// replica, independent of the machine, the time and memory addresses. Clients may be hostile, so
// any bytes are a command; one without meaning changes nothing, and its output says so.
//
// Owner: its replica. Threads: one at a time. Calls throw nothing but std::bad_alloc.
class LEAT_EXPORT StateMachine {
 public:
  virtual ~StateMachine() = default;

  // Executes a command provisionally; appends its output, at most kMaxItemBytes, to `output`.
  virtual void execute(std::span<const std::byte> command, Bytes& output) = 0;
  // keep() makes the commands since the last keep() permanent; undo() reverts them.
  virtual void keep() noexcept = 0;
  virtual void undo() noexcept = 0;

  // Appends the state as bytes; everything executed must have been kept. Equal states give equal
  // bytes.
  virtual void save(Bytes& state) const = 0;
  // Replaces the state by a saved one and returns true. Returns false, and changes nothing, if
  // save() does not make such bytes.
  [[nodiscard]] virtual bool load(std::span<const std::byte> state) = 0;
};

// Makes the machine in its first state.
using MachineFactory = std::function<std::unique_ptr<StateMachine>()>;

// Limits of one command or output, in bytes, and of the commands under one signature.
inline constexpr std::size_t kMaxItemBytes = 16'384;
inline constexpr std::size_t kMaxCommands = 4096;
// Limit of a client's whole request, in bytes.
inline constexpr std::size_t kMaxRequestBytes = 256 * 1024;

}  // namespace leat::trusted
