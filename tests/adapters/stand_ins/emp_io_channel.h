// As much of emp-tool's I/O channels as an adapter meets: one with virtuals and two templates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leat::stand_in {

class IoChannel {
 public:
  virtual ~IoChannel() = default;
  virtual void send_data_internal(const void* data, std::int64_t bytes) = 0;
  virtual void recv_data_internal(void* data, std::int64_t bytes) = 0;
  virtual void flush() {}
  virtual void sync() {}

  void send_data(const void* data, std::int64_t bytes) {
    counter += static_cast<std::uint64_t>(bytes);
    if (keeps_digest_) sent_digest += static_cast<std::uint64_t>(bytes);
    send_data_internal(data, bytes);
  }
  void recv_data(void* data, std::int64_t bytes) {
    recv_data_internal(data, bytes);
    if (keeps_digest_) received_digest += static_cast<std::uint64_t>(bytes);
  }

  // The transcript: here only the number of bytes that it has absorbed.
  void enable_fs() { keeps_digest_ = true; }
  bool fs_enabled() const { return keeps_digest_; }

  std::uint64_t counter = 0;
  std::uint64_t sent_digest = 0;
  std::uint64_t received_digest = 0;

 private:
  bool keeps_digest_ = false;
};

// Calls ..._internal of the derived class.
template <typename Derived>
class LateIoChannel {
 public:
  void send_data(const void* data, std::size_t bytes) {
    counter += bytes;
    derived().send_data_internal(data, bytes);
  }
  void recv_data(void* data, std::size_t bytes) { derived().recv_data_internal(data, bytes); }
  void send_bytes(const std::byte* data, std::size_t count) { send_data(data, count); }
  void recv_bytes(std::byte* data, std::size_t count) { recv_data(data, count); }

  std::uint64_t counter = 0;

 private:
  Derived& derived() { return *static_cast<Derived*>(this); }
};

// Calls send_data of the derived class; counts nothing.
template <typename Derived>
class EarlyIoChannel {
 public:
  void send_data(const void* data, int bytes) { derived().send_data(data, bytes); }
  void recv_data(void* data, int bytes) { derived().recv_data(data, bytes); }
  void send_bytes(const std::byte* data, int count) { send_data(data, count); }
  void recv_bytes(std::byte* data, int count) { recv_data(data, count); }

 private:
  Derived& derived() { return *static_cast<Derived*>(this); }
};

}  // namespace leat::stand_in
