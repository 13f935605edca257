// TCP as emp-tool's NetIO uses it.
#pragma once

#include <cstdio>
#include <vector>

#include "bounds/plain_tcp.h"
#include "frameworks/io.h"

namespace leat::bench {

// Gathers 32 KiB in front of a stdio stream with a buffer of 1 MiB, and reads 32 KiB at a time.
class NetIo final : public Io {
 public:
  NetIo(TcpConnection connection, bool is_server);
  NetIo(const NetIo&) = delete;
  NetIo& operator=(const NetIo&) = delete;
  ~NetIo() override;

  void send_data_internal(const void* data, std::int64_t bytes) override;
  void recv_data_internal(void* data, std::int64_t bytes) override;
  void flush() override;
  void sync() override;

 private:
  void write(const void* data, std::size_t bytes);

  TcpConnection connection_;
  const bool is_server_;
  std::vector<char> stream_buffer_;
  std::FILE* stream_;
  std::vector<std::byte> gather_;
  std::size_t gathered_ = 0;
  bool dirty_ = false;
  std::vector<std::byte> staged_;
  std::size_t next_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace leat::bench
