// Why one side of a transport is dead: the first reason, told in the same words and with the same
// code at every call from then on.
#pragma once

#include <new>
#include <string>

#include "leat/error.h"

namespace leat::detail {

// Threads: those of its side. Movable and copyable as a value.
class StickyError {
 public:
  bool empty() const { return !set_; }
  // What arrived whole before the peer was lost still counts; after what the peer must not send
  // nothing does.
  bool is_protocol() const { return set_ && code_ == ErrorCode::kProtocol; }

  // The first reason stays. Without memory for the text the code alone is kept.
  void set(ErrorCode code, const std::string& text) noexcept {
    if (set_) return;
    set_ = true;
    code_ = code;
    try {
      text_ = text;
    } catch (const std::bad_alloc&) {
      text_ = "out of memory";  // short enough to need none
    }
  }
  [[noreturn]] void fail(ErrorCode code, const std::string& text) {
    set(code, text);
    tell();
  }
  void check() const {
    if (set_) [[unlikely]]
      tell();
  }

  // Requires that one is set. Not compiled into the paths of messages.
  [[noreturn, gnu::noinline, gnu::cold]] void tell() const { throw Error(code_, text_); }

 private:
  bool set_ = false;
  ErrorCode code_ = ErrorCode::kPeerDied;
  std::string text_;
};

}  // namespace leat::detail
