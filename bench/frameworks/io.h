// What the protocols of leat-bench frameworks send and receive with, as emp-tool's IOChannel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace leat::bench {

class Io {
 public:
  virtual ~Io() = default;
  virtual void send_data_internal(const void* data, std::int64_t bytes) = 0;
  virtual void recv_data_internal(void* data, std::int64_t bytes) = 0;
  virtual void flush() = 0;
  virtual void sync() = 0;
  // The next bytes where they arrived, and where to write the next ones; here both are copied.
  virtual const void* receive_view(std::int64_t bytes) {
    void* const scratch = scratch_for(bytes);
    recv_data(scratch, bytes);
    return scratch;
  }
  virtual void* send_place(std::int64_t bytes) { return scratch_for(bytes); }

  void send_data(const void* data, std::int64_t bytes) { send_data_internal(data, bytes); }
  void recv_data(void* data, std::int64_t bytes) { recv_data_internal(data, bytes); }

 private:
  struct alignas(16) Block {
    std::array<std::byte, 16> bytes;
  };
  void* scratch_for(std::int64_t bytes) {
    const std::size_t blocks = static_cast<std::size_t>(bytes) / sizeof(Block) + 1;
    if (scratch_.size() < blocks) scratch_.resize(blocks);
    return scratch_.data();
  }

  std::vector<Block> scratch_;
};

}  // namespace leat::bench
