// The memory of a call that reads or writes, as its iovecs say, with the checks of Linux.
#pragma once

#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace leat::posix {

// -errno if a call may not have so many, else 0. `too_many`: EINVAL, or EMSGSIZE of a msghdr.
inline int check_count(const iovec* parts, std::size_t count, int too_many) {
  if (count > IOV_MAX) return -too_many;
  return parts == nullptr && count != 0 ? -EFAULT : 0;
}

inline int check_message(const msghdr* message) {
  if (message == nullptr) return -EFAULT;
  return check_count(message->msg_iov, message->msg_iovlen, EMSGSIZE);
}

// What a received message says of the sender and by control data on a TCP socket: nothing.
inline void no_control(msghdr& message, int flags) {
  message.msg_namelen = 0;
  message.msg_controllen = 0;
  message.msg_flags = flags & MSG_CMSG_CLOEXEC;  // the kernel gives it back
}

inline bool holds_nothing(const iovec* parts, std::size_t count) {
  return std::all_of(parts, parts + count, [](const iovec& part) { return part.iov_len == 0; });
}

inline iovec one_part(const void* bytes, std::size_t count) {
  return {.iov_base = const_cast<void*>(bytes), .iov_len = count};
}

// What is left of it while a call goes on. Value type; points to the caller's iovecs.
class Buffers {
 public:
  // Of parts that check_count() accepts. `drops`: what is read is thrown away (MSG_TRUNC), so the
  // memory is never touched.
  Buffers(const iovec* parts, std::size_t count, bool drops = false) : part_(parts), drops_(drops) {
    std::uintptr_t addresses = 0;
    std::size_t lengths = 0;
    bool sound = true;
    for (std::size_t i = 0; i < count; ++i) {
      const auto address = reinterpret_cast<std::uintptr_t>(parts[i].iov_base);
      addresses |= address;
      if (count > 1) addresses |= address + parts[i].iov_len;
      lengths |= parts[i].iov_len;
      left_ = std::min(left_ + std::min(parts[i].iov_len, kMost), kMost);
      // The first page is nobody's: the bad pointer that programs have. Others are faults.
      sound = sound && (drops || address >= kFirstPage || parts[i].iov_len == 0);
      if (sound) sound_ = left_;
    }
    // The kernel looks at the lengths of vectors only; one may not reach into its own addresses,
    // the upper half.
    if (count > 1 && lengths > SSIZE_MAX) {
      refused_ = -EINVAL;
    } else if (addresses > INTPTR_MAX) {
      refused_ = -EFAULT;
    }
  }

  // -errno of what is wrong before anything is done, or 0.
  int refused() const { return refused_; }
  std::size_t left() const { return left_; }
  // How many of them come before a bad pointer.
  std::size_t sound() const { return sound_; }

  // The next bytes in one piece, of the sound ones; empty only after those.
  std::span<std::byte> front() {
    if (sound_ == 0) return {};
    while (part_->iov_len == offset_) {
      ++part_;
      offset_ = 0;
    }
    return {static_cast<std::byte*>(part_->iov_base) + offset_,
            std::min(part_->iov_len - offset_, sound_)};
  }
  // At most front().size().
  void advance(std::size_t bytes) {
    offset_ += bytes;
    left_ -= bytes;
    sound_ -= bytes;
  }
  // Copies bytes into the memory, or the memory to `to`: how many there was room for.
  std::size_t put(const std::byte* from, std::size_t bytes) {
    return each(bytes, [&](std::byte* memory, std::size_t at, std::size_t part) {
      if (!drops_) std::memcpy(memory, from + at, part);
    });
  }
  std::size_t take(std::byte* to, std::size_t bytes) {
    return each(bytes, [to](const std::byte* memory, std::size_t at, std::size_t part) {
      std::memcpy(to + at, memory, part);
    });
  }

  // Leaves the last byte out, which is what comes after the rest. Before any advance(); not of no
  // bytes.
  const void* hold_last_back() {
    std::size_t before = --left_;
    sound_ = std::min(sound_, left_);
    const iovec* part = part_;
    while (before >= part->iov_len) before -= part++->iov_len;
    return static_cast<const std::byte*>(part->iov_base) + before;
  }

 private:
  static constexpr std::uintptr_t kFirstPage = 4096;
  static constexpr std::size_t kMost = 0x7fff'f000;  // that Linux transfers by one call

  template <typename Copy>
  std::size_t each(std::size_t most, const Copy& copy) {
    std::size_t done = 0;
    while (done < most && sound_ != 0) {
      const std::span<std::byte> memory = front();
      const std::size_t part = std::min(memory.size(), most - done);
      copy(memory.data(), done, part);
      advance(part);
      done += part;
    }
    return done;
  }

  const iovec* part_;
  std::size_t offset_ = 0;
  std::size_t left_ = 0;
  std::size_t sound_ = 0;
  int refused_ = 0;
  bool drops_;
};

}  // namespace leat::posix
