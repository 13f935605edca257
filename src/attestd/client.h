// One client of leat-attestd: its shared memory, as the daemon sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attest/kernel_ring.h"
#include "attestd/requests.h"
#include "base/fd.h"
#include "base/mapped_memory.h"

namespace leat::attestd {

// Each call returns at once, whatever the client writes into the memory, and whether it lives,
// sleeps or is stopped. Owner: the server, in one thread.
class Client {
 public:
  // Throws kResource, kSystem.
  Client(leat::detail::Fd socket, uid_t user, const trusted::detail::RingShape& shape,
         Requests requests);

  // Tells the client where its memory is. Returns false if that is impossible; then drop the
  // client.
  bool welcome(const trusted::detail::Welcome& welcome) noexcept;

  // Serves waiting requests, at most a fair share. `scratch`: memory of the shape's max_data_bytes.
  // Returns whether there was any request.
  bool serve(std::span<std::byte> scratch) noexcept;
  bool has_request() const noexcept;
  // Tells the client whether the daemon sleeps, and must be woken for the next request.
  void set_sleeping(bool sleeping) noexcept;

  int socket() const { return socket_.get(); }
  int wake_event() const { return wake_.get(); }
  uid_t user() const { return user_; }

 private:
  bool has_request_at(std::uint32_t slot) const noexcept;
  std::size_t serve_slot(std::uint32_t number, std::span<std::byte> scratch) noexcept;
  void wake_waiter(const trusted::detail::RingSlot& slot) noexcept;

  const leat::detail::Fd socket_;
  const uid_t user_;
  const trusted::detail::RingShape shape_;
  Requests requests_;
  leat::detail::Fd file_;  // until it is sent
  leat::detail::Fd wake_;
  leat::detail::MappedMemory memory_;
  std::vector<std::uint32_t> answered_;  // sequence of the last request of each slot
  std::uint32_t next_ = 0;               // slot at which the next turn begins
};

}  // namespace leat::attestd
