// The byte stream below the I/O channels of emp.h.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "leat/adapters/endpoint.h"
#include "leat/channel.h"
#include "leat/error.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "leat/wait.h"

namespace leat::adapters {

// A stream with the guarantees of emp-tool's NetIO: it gathers small sends, and sends them when its
// buffer is full, at flush(), before receiving, and on destruction. In addition, a send without
// room takes in what arrives meanwhile, so that two sides may both send any amount before they
// receive.
// Owner: the caller that constructed it. Threads: one at a time, as for NetIO.
// Errors: leat::Error. kPeerDied if the peer ends before it has sent the bytes that the caller
// wants; kTimeout after the option `timeout` without room for the next kPieceBytes, or without a
// byte to receive. Part of a send may have left then: make another stream.
class EmpStream {
 public:
  static constexpr std::size_t kGatherBytes = std::size_t{32} << 10;
  static constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
  // How long a client waits for its server, unless the options say otherwise.
  static constexpr std::chrono::seconds kConnectLimit{60};

  // Connects to `address`; with a null address waits for one client at `port`, on all addresses.
  EmpStream(const char* address, int port, const Options& options)
      : channel_(address == nullptr
                     ? accept_one(port, options)
                     : Channel::connect(endpoint(address, port), patient(options, kConnectLimit))),
        leaves_by_itself_(channel_.leaves_by_itself()),
        piece_bytes_(std::min(kPieceBytes, channel_.max_in_place_bytes())) {}
  EmpStream(const EmpStream&) = delete;
  EmpStream& operator=(const EmpStream&) = delete;
  ~EmpStream() {
    try {
      flush();
    } catch (const std::exception&) {
      // The peer is gone, and with it the receiver of these bytes.
    }
  }

  void send(const void* data, std::size_t bytes) {
    if (bytes > kGatherBytes - gathered_) [[unlikely]] {
      push_gathered();
      if (bytes > kGatherBytes) return push({static_cast<const std::byte*>(data), bytes});
    }
    if (bytes == 0) return;
    std::memcpy(gather_.data() + gathered_, data, bytes);
    gathered_ += bytes;
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

  void flush() {
    push_gathered();
    if (leaves_by_itself_) return;
    try {
      channel_.flush();
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

  Channel& channel() { return channel_; }

 private:
  static Channel accept_one(int port, const Options& options) {
    return Listener(endpoint("", port), options).accept();
  }

  void push_gathered() {
    if (gathered_ != 0) push(std::span(gather_).first(std::exchange(gathered_, 0)));
  }

  void push(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), piece_bytes_));
      if (!channel_.try_send(piece)) wait_for_room(piece);
      bytes = bytes.subspan(piece.size());
    }
  }

  void wait_for_room(std::span<const std::byte> piece) {
    Channel* const channel = &channel_;
    const auto sent = [&] {
      do {
        if (channel_.try_send(piece)) return true;
      } while (take_in());
      return false;
    };
    // If the peer went away, try_send throws, unless the transport is re-establishing the
    // connection.
    while (wait_any({&channel, 1}, WaitFor::kRoom, "send", sent) != nullptr) {
    }
  }

  void receive_more() {
    early_ = {};
    current_.release();
    current_ = channel_.receive();
    if (!current_)
      throw Error(ErrorCode::kPeerDied, "the peer at " + channel_.peer_address() +
                                            " ended while more was wanted from it");
    unread_ = current_.bytes();
  }

  // Takes in what has arrived, so that the peer has room. False: nothing has arrived.
  bool take_in() {
    if (ended_) return false;
    std::optional<Message> message = channel_.try_receive();
    if (!message) return false;
    ended_ = !*message;
    // Memory goes back to the peer in order, so the message being read must be copied as well.
    if (current_) early_.assign(unread_.begin(), unread_.end());
    current_.release();
    std::size_t taken = early_.size() - unread_.size();
    if (taken >= unread_.size()) {  // rarely, so that no byte is moved often
      early_.erase(early_.begin(), early_.begin() + static_cast<std::ptrdiff_t>(taken));
      taken = 0;
    }
    early_.insert(early_.end(), message->bytes().begin(), message->bytes().end());
    unread_ = std::span<const std::byte>(early_).subspan(taken);
    return true;
  }

  Channel channel_;
  const bool leaves_by_itself_;  // as Channel says: asked once, because every round flushes
  const std::size_t piece_bytes_;
  std::array<std::byte, kGatherBytes> gather_;
  std::size_t gathered_ = 0;

  std::span<const std::byte> unread_;  // of current_, or else the end of early_
  Message current_;
  std::vector<std::byte> early_;  // arrived while a send waited
  bool ended_ = false;            // take_in() has seen the peer's end
};

}  // namespace leat::adapters
