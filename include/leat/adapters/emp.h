// leat as an I/O channel of emp-tool, in place of its NetIO. Include emp-tool's io_channel.h too:
//
//   using NetIO = leat::adapters::EmpChannel<emp::IOChannel>;      // IOChannel has virtuals
//   using NetIO = leat::adapters::EmpCrtpChannel<emp::IOChannel>;  // IOChannel<T>: to emp-tool 0.3
//
// docs/integration.md says more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "leat/adapters/emp_stream.h"
#include "leat/channel.h"
#include "leat/error.h"
#include "leat/options.h"

namespace leat::adapters {

// For an emp-tool whose IOChannel has virtual functions. Constructor, names and counters are those
// of NetIO. Threads and errors are those of EmpStream.
template <typename Base>
class EmpChannel : public Base {
 public:
  EmpChannel(const char* address, int port, bool quiet = false, const Options& options = {})
      : is_server(address == nullptr), stream_(address, port, options) {
    if (!quiet) std::cout << "connected: " << channel().description() << std::endl;
  }
  static std::unique_ptr<EmpChannel> listen(int port, bool quiet = false) {
    return std::make_unique<EmpChannel>(nullptr, port, quiet);
  }
  static std::unique_ptr<EmpChannel> connect(const std::string& address, int port,
                                             bool quiet = false) {
    return std::make_unique<EmpChannel>(address.c_str(), port, quiet);
  }

  void send_data_internal(const void* data, std::int64_t bytes) override {
    const std::size_t count = length(bytes);
    bytes_sent += count;
    stream_.send(data, count);
  }
  void recv_data_internal(void* data, std::int64_t bytes) override {
    const std::size_t count = length(bytes);
    bytes_recv += count;
    stream_.receive(data, count);
  }
  void flush() override { stream_.flush(); }
  void sync() override { stream_.sync(is_server); }

  Channel& channel() { return stream_.channel(); }

  const bool is_server;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_recv = 0;

 private:
  static std::size_t length(std::int64_t bytes) {
    if (bytes < 0) throw Error(ErrorCode::kInvalidArgument, "a negative number of bytes");
    return static_cast<std::size_t>(bytes);
  }

  EmpStream stream_;
};

// For an emp-tool whose IOChannel is a template that calls its derived class: later versions call
// send_data_internal, earlier ones send_data.
template <template <typename> class Base>
class EmpCrtpChannel : public Base<EmpCrtpChannel<Base>> {
 public:
  EmpCrtpChannel(const char* address, int port, bool quiet = false, const Options& options = {})
      : is_server(address == nullptr), stream_(address, port, options) {
    if (!quiet) std::cout << "connected: " << channel().description() << std::endl;
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

  Channel& channel() { return stream_.channel(); }

  const bool is_server;

 private:
  EmpStream stream_;
};

}  // namespace leat::adapters
