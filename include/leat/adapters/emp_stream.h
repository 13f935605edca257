// What carries the I/O channels of emp.h: one connection, and a byte stream in each of its
// contexts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leat/adapters/emp_connection.h"
#include "leat/adapters/shared_channel.h"
#include "leat/channel.h"
#include "leat/error.h"

namespace leat::adapters {

// A stream with the guarantees of emp-tool's NetIO: it gathers small sends, and sends them when its
// buffer is full, at flush(), before receiving, and on destruction. In addition, a send without
// room takes in what arrives meanwhile, so that two sides may both send any amount before they
// receive.
// Owner: the caller that constructed it. Threads: one at a time, as for NetIO; streams of other
// contexts are independent.
// Errors: leat::Error. kPeerDied if the peer ends before it has sent the bytes that the caller
// wants; kTimeout after the option `timeout` without room for the next kPieceBytes, or without a
// byte to receive. Part of a send may have left then: make another stream.
class EmpStream {
 public:
  static constexpr std::size_t kGatherBytes = std::size_t{32} << 10;
  static constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
  static constexpr std::size_t kAlignment = 16;  // of emp-tool's blocks

  EmpStream(EmpConnection& connection, unsigned context)
      : connection_(connection),
        shared_(connection.shared()),
        context_(connection.occupy(context)),
        leaves_by_itself_(shared_.channel().leaves_by_itself()),
        piece_bytes_(std::min(kPieceBytes, shared_.channel().max_in_place_bytes(context))) {}
  EmpStream(const EmpStream&) = delete;
  EmpStream& operator=(const EmpStream&) = delete;
  ~EmpStream() {
    try {
      flush();
    } catch (const std::exception&) {
      // The peer is gone, and with it the receiver of these bytes.
    }
    shared_.give_back(context_, std::move(current_));
    connection_.vacate(context_);
  }

  // Bytes at the last place() are sent where they are.
  void send(const void* data, std::size_t bytes) {
    if (place_ != nullptr && is_in_place(data, bytes)) {
      gathered_ += bytes;
      return;
    }
    if (bytes > kGatherBytes - gathered_) [[unlikely]] {
      push_gathered();
      if (bytes > kGatherBytes) return push({static_cast<const std::byte*>(data), bytes});
    }
    if (bytes == 0) return;
    std::memcpy(gather_.data() + gathered_, data, bytes);
    gathered_ += bytes;
  }
  // Returns memory for the next `bytes` bytes, to be filled and then sent by the next call, which
  // must be send() of at most as many bytes from here.
  std::byte* place(std::size_t bytes) {
    if (bytes > kGatherBytes) {
      large_.resize(bytes / kAlignment + 1);
      return place_ = large_.front().bytes.data();
    }
    if (bytes > kGatherBytes - gathered_ || gathered_ % kAlignment != 0) push_gathered();
    return place_ = gather_.data() + gathered_;
  }

  void receive(void* data, std::size_t bytes) {
    push_gathered();
    auto* to = static_cast<std::byte*>(data);
    while (bytes != 0) {
      if (unread_.empty()) receive_more();
      const std::size_t part = std::min(bytes, unread_.size());
      std::memcpy(to, unread_.data(), part);
      unread_ = unread_.subspan(part);
      to += part;
      bytes -= part;
    }
  }
  // Receives the next `bytes` bytes where they lie, or, if they came in several messages, not
  // aligned, or `own` is set, in memory of this stream. Valid until the next call.
  const std::byte* view(std::size_t bytes, bool own = false) {
    push_gathered();
    if (bytes != 0 && unread_.empty()) receive_more();
    const bool aligned = reinterpret_cast<std::uintptr_t>(unread_.data()) % kAlignment == 0;
    if (!own && aligned && bytes != 0 && bytes <= unread_.size()) {
      const std::byte* const there = unread_.data();
      unread_ = unread_.subspan(bytes);
      return there;
    }
    assembled_.resize(bytes / kAlignment + 1);
    receive(assembled_.front().bytes.data(), bytes);
    copied_bytes_ += bytes;
    return assembled_.front().bytes.data();
  }
  // How many bytes of views were copied.
  std::uint64_t copied_bytes() const { return copied_bytes_; }

  void flush() {
    push_gathered();
    if (leaves_by_itself_) return;
    try {
      shared_.flush([this] { return take_in(); });
    } catch (const Error& error) {
      // As with a socket, a peer that left after it had all it wanted is not an error here; if
      // it lacked something, receive() will say so.
      if (error.code() != ErrorCode::kPeerDied) throw;
    }
  }

  // Returns when the peer has called it too. Exactly one side passes `first`.
  void sync(bool first) {
    char token = 0;
    if (first) send(&token, 1);
    receive(&token, 1);
    if (!first) send(&token, 1);
    flush();
  }

 private:
  struct alignas(kAlignment) Block {
    std::array<std::byte, kAlignment> bytes;
  };

  bool is_in_place(const void* data, std::size_t bytes) {
    if (data != std::exchange(place_, nullptr) || data != gather_.data() + gathered_) return false;
    if (bytes <= kGatherBytes - gathered_) return true;
    throw Error(ErrorCode::kInvalidArgument, "more bytes are sent than there was place for");
  }

  void push_gathered() {
    if (gathered_ != 0) push(std::span(gather_).first(std::exchange(gathered_, 0)));
  }

  void push(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), piece_bytes_));
      shared_.send(piece, context_, [this] { return take_in(); });
      bytes = bytes.subspan(piece.size());
    }
  }

  void receive_more() {
    early_ = {};
    current_ = shared_.receive(context_, std::move(current_));
    if (!current_)
      throw Error(ErrorCode::kPeerDied, "the peer at " + shared_.channel().peer_address() +
                                            " ended while more was wanted from it");
    unread_ = current_.bytes();
  }

  // Takes in what has arrived, so that the peer has room. False: nothing has arrived.
  bool take_in() {
    if (ended_) return false;
    // Memory goes back to the peer in order, so the message being read must be copied as well.
    if (current_) early_.assign(unread_.begin(), unread_.end());
    const std::size_t unread_bytes = unread_.size();
    std::size_t taken = early_.size() - unread_bytes;
    std::optional<Message> message = shared_.try_receive(context_, std::move(current_));
    current_ = {};
    unread_ = std::span<const std::byte>(early_).subspan(taken);
    if (!message) return false;
    ended_ = !*message;
    if (taken >= unread_bytes) {  // rarely, so that no byte is moved often
      early_.erase(early_.begin(), early_.begin() + static_cast<std::ptrdiff_t>(taken));
      taken = 0;
    }
    early_.insert(early_.end(), message->bytes().begin(), message->bytes().end());
    unread_ = std::span<const std::byte>(early_).subspan(taken);
    shared_.give_back(context_, std::move(*message));
    return true;
  }

  EmpConnection& connection_;
  SharedChannel& shared_;
  const unsigned context_;
  const bool leaves_by_itself_;  // as Channel says: asked once, because every round flushes
  const std::size_t piece_bytes_;
  alignas(64) std::array<std::byte, kGatherBytes> gather_;
  std::size_t gathered_ = 0;
  std::byte* place_ = nullptr;  // in gather_ or large_
  std::vector<Block> large_;

  std::span<const std::byte> unread_;  // of current_, or else the end of early_
  Message current_;
  std::vector<std::byte> early_;  // arrived while a send waited
  std::vector<Block> assembled_;  // the last view, if it was not one message's
  std::uint64_t copied_bytes_ = 0;
  bool ended_ = false;  // take_in() has seen the peer's end
};

}  // namespace leat::adapters
