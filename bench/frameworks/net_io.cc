#include "frameworks/net_io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace leat::bench {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{32} << 10;
constexpr std::size_t kStreamBytes = std::size_t{1} << 20;

std::FILE* open_stream(int fd) {
  const int copy = dup(fd);
  std::FILE* const stream = copy < 0 ? nullptr : fdopen(copy, "wb");
  if (stream == nullptr) throw std::system_error(errno, std::generic_category(), "fdopen");
  return stream;
}

}  // namespace

NetIo::NetIo(TcpConnection connection, bool is_server)
    : connection_(std::move(connection)),
      is_server_(is_server),
      stream_buffer_(kStreamBytes),
      stream_(open_stream(connection_.fd())),
      gather_(kStagingBytes),
      staged_(kStagingBytes) {
  std::setvbuf(stream_, stream_buffer_.data(), _IOFBF, stream_buffer_.size());
}

NetIo::~NetIo() { std::fclose(stream_); }

void NetIo::write(const void* data, std::size_t bytes) {
  if (bytes != 0 && std::fwrite(data, 1, bytes, stream_) != bytes)
    throw std::system_error(errno, std::generic_category(), "fwrite");
}

void NetIo::send_data_internal(const void* data, std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(bytes);
  dirty_ = true;
  if (count > gather_.size() - gathered_) {
    write(gather_.data(), std::exchange(gathered_, 0));
    return write(data, count);
  }
  std::memcpy(gather_.data() + gathered_, data, count);
  gathered_ += count;
}

void NetIo::recv_data_internal(void* data, std::int64_t bytes) {
  flush();
  auto* to = static_cast<std::byte*>(data);
  for (auto left = static_cast<std::size_t>(bytes); left != 0;) {
    if (next_ == filled_) {
      const ssize_t got = ::read(connection_.fd(), staged_.data(), staged_.size());
      if (got < 0) throw std::system_error(errno, std::generic_category(), "read");
      if (got == 0) throw std::runtime_error("the peer ended early");
      next_ = 0;
      filled_ = static_cast<std::size_t>(got);
    }
    const std::size_t part = std::min(left, filled_ - next_);
    std::memcpy(to, staged_.data() + next_, part);
    next_ += part;
    to += part;
    left -= part;
  }
}

void NetIo::flush() {
  if (!std::exchange(dirty_, false)) return;
  write(gather_.data(), std::exchange(gathered_, 0));
  if (std::fflush(stream_) != 0) throw std::system_error(errno, std::generic_category(), "fflush");
}

void NetIo::sync() {
  char token = 0;
  if (is_server_) send_data(&token, 1);
  recv_data(&token, 1);
  if (!is_server_) send_data(&token, 1);
  flush();
}

}  // namespace leat::bench
