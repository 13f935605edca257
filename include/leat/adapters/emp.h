// leat as an I/O channel of emp-tool, in place of its NetIO. Include emp-tool's io_channel.h too:
//
//   using NetIO = leat::adapters::EmpChannel<emp::IOChannel>;      // IOChannel has virtuals
//   using NetIO = leat::adapters::EmpCrtpChannel<emp::IOChannel>;  // IOChannel<T>: to emp-tool 0.3
//
// One connection has 16 protocol contexts, and a channel is one of them. The constructor connects
// and takes context 0; each other protocol of the two parties gets its own:
//
//   NetIO io(address, port);
//   auto triples = io.context(1);  // the same number on both sides; also for another thread
//   IKNP iknp(party, triples.get());
//
// Protocols that can read a message where it lies, or write one where it is sent from, use
// receive_view() and send_place(). docs/integration.md says more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "leat/adapters/emp_stream.h"
#include "leat/channel.h"
#include "leat/error.h"
#include "leat/options.h"

namespace leat::adapters {

// A context of a connection, which ends with the last of its contexts. For an emp-tool whose
// IOChannel has virtual functions. Constructor, names and counters are those of NetIO. Threads and
// errors are those of EmpStream: one thread at a time uses a channel, others the other contexts.
template <typename Base>
class EmpChannel : public Base {
 public:
  EmpChannel(const char* address, int port, bool quiet = false, const Options& options = {})
      : EmpChannel(std::make_shared<EmpConnection>(address, port, options), 0) {
    if (!quiet) std::cout << "connected: " << channel().description() << std::endl;
  }
  // Takes over a connected channel; one of its two sides is the server.
  EmpChannel(Channel connected, bool server)
      : EmpChannel(std::make_shared<EmpConnection>(std::move(connected), server), 0) {}
  static std::unique_ptr<EmpChannel> listen(int port, bool quiet = false) {
    return std::make_unique<EmpChannel>(nullptr, port, quiet);
  }
  static std::unique_ptr<EmpChannel> connect(const std::string& address, int port,
                                             bool quiet = false) {
    return std::make_unique<EmpChannel>(address.c_str(), port, quiet);
  }

  // The channel of another context, 0 to 15, of the same connection. What the peer sends there
  // before it is made waits for it. Throws kInvalidArgument while that context is in use here.
  std::unique_ptr<EmpChannel> context(unsigned number) const {
    return std::unique_ptr<EmpChannel>(new EmpChannel(connection_, number));
  }
  // context() of the lowest number that is not in use: both sides make them in the same order.
  std::unique_ptr<EmpChannel> make_sibling() const { return context(connection_->vacant()); }

  void send_data_internal(const void* data, std::int64_t bytes) override {
    const std::size_t count = length(bytes);
    bytes_sent += count;
    stream_.send(data, count);
  }
  void recv_data_internal(void* data, std::int64_t bytes) override {
    const std::size_t count = length(bytes);
    bytes_recv += count;
    if (!viewed_) stream_.receive(data, count);
  }
  void flush() override { stream_.flush(); }
  void sync() override { stream_.sync(is_server); }

  // recv_data() without a copy: returns the next bytes where they arrived, aligned for blocks,
  // until the next call on this channel. They are copied if the peer sent them in several messages
  // (it sends one for each 32 KiB that it gathered, and at each flush), and while the channel keeps
  // a Fiat-Shamir transcript, because a malicious peer could change them after they were hashed.
  const void* receive_view(std::int64_t bytes) {
    const bool copies = [this] {
      if constexpr (requires { this->fs_enabled(); }) return this->fs_enabled();
      return false;
    }();
    const std::byte* const view = stream_.view(length(bytes), copies);
    const Flag viewed(viewed_);
    this->recv_data(const_cast<std::byte*>(view), bytes);  // counted and hashed, not written to
    return view;
  }
  // Memory, aligned for blocks, for the next bytes: the caller fills it, and send_data(), the next
  // call on this channel, sends at most as many bytes from there without gathering them first.
  void* send_place(std::int64_t bytes) { return stream_.place(length(bytes)); }
  // How many bytes of views were copied.
  std::uint64_t copied_bytes() const { return stream_.copied_bytes(); }

  Channel& channel() { return connection_->shared().channel(); }

  const bool is_server;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_recv = 0;

 private:
  struct Flag {  // set while it exists
    explicit Flag(bool& flag) : flag(flag) { flag = true; }
    ~Flag() { flag = false; }
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;
    bool& flag;
  };

  EmpChannel(std::shared_ptr<EmpConnection> connection, unsigned context)
      : is_server(connection->is_server()),
        connection_(std::move(connection)),
        stream_(*connection_, context) {}

  static std::size_t length(std::int64_t bytes) {
    if (bytes < 0) throw Error(ErrorCode::kInvalidArgument, "a negative number of bytes");
    return static_cast<std::size_t>(bytes);
  }

  std::shared_ptr<EmpConnection> connection_;
  EmpStream stream_;
  bool viewed_ = false;  // the bytes of recv_data() are there already
};

// The same for an emp-tool whose IOChannel is a template that calls its derived class: later
// versions call send_data_internal, earlier ones send_data.
template <template <typename> class Base>
class EmpCrtpChannel : public Base<EmpCrtpChannel<Base>> {
 public:
  EmpCrtpChannel(const char* address, int port, bool quiet = false, const Options& options = {})
      : EmpCrtpChannel(std::make_shared<EmpConnection>(address, port, options), 0) {
    if (!quiet) std::cout << "connected: " << channel().description() << std::endl;
  }
  EmpCrtpChannel(Channel connected, bool server)
      : EmpCrtpChannel(std::make_shared<EmpConnection>(std::move(connected), server), 0) {}

  std::unique_ptr<EmpCrtpChannel> context(unsigned number) const {
    return std::unique_ptr<EmpCrtpChannel>(new EmpCrtpChannel(connection_, number));
  }

  void send_data(const void* data, std::size_t bytes) {
    if constexpr (requires { this->counter; }) this->counter += bytes;
    stream_.send(data, bytes);
  }
  void recv_data(void* data, std::size_t bytes) { stream_.receive(data, bytes); }
  void send_data_internal(const void* data, std::size_t bytes) { stream_.send(data, bytes); }
  void recv_data_internal(void* data, std::size_t bytes) { stream_.receive(data, bytes); }
  void flush() { stream_.flush(); }
  void sync() { stream_.sync(is_server); }

  const void* receive_view(std::size_t bytes) { return stream_.view(bytes); }
  void* send_place(std::size_t bytes) { return stream_.place(bytes); }
  std::uint64_t copied_bytes() const { return stream_.copied_bytes(); }

  Channel& channel() { return connection_->shared().channel(); }

  const bool is_server;

 private:
  EmpCrtpChannel(std::shared_ptr<EmpConnection> connection, unsigned context)
      : is_server(connection->is_server()),
        connection_(std::move(connection)),
        stream_(*connection_, context) {}

  std::shared_ptr<EmpConnection> connection_;
  EmpStream stream_;
};

}  // namespace leat::adapters
