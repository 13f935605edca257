// One client of leat-attestd: its shared memory, seen from the daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attestd/requests.h"
#include "base/fd.h"
#include "base/mapped_memory.h"
#include "trusted/kernel_ring.h"

namespace leat::attestd {

// Whatever the client writes into the memory, and whether it lives, sleeps or is stopped: each call
// returns at once. Owner: the server, one thread.
class Client {
 public:
  // Throws kResource, kSystem.
  Client(leat::detail::Fd socket, uid_t user, const trusted::detail::RingShape& shape,
         Requests requests);

  // Tells the client where its memory is. False: it cannot be told, drop it.
  bool welcome(const trusted::detail::Welcome& welcome) noexcept;

  // Serves what waits, but not more than a fair share. `scratch`: memory of the shape's
  // max_data_bytes. Whether there was anything.
  bool serve(std::span<std::byte> scratch) noexcept;
  bool has_request() const noexcept;
  // Says whether the daemon sleeps, and must be woken for the next request.
  void set_sleeping(bool sleeping) noexcept;

  int socket() const { return socket_.get(); }
  int wake_event() const { return wake_.get(); }
  uid_t user() const { return user_; }

 private:
  std::size_t serve_next(std::span<std::byte> scratch) noexcept;

  const leat::detail::Fd socket_;
  const uid_t user_;
  const trusted::detail::RingShape shape_;
  Requests requests_;
  leat::detail::Fd file_;  // until it was sent
  leat::detail::Fd wake_;
  leat::detail::MappedMemory memory_;
  std::uint32_t next_ = 0;  // number of the request that is expected
};

}  // namespace leat::attestd
