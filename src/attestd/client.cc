#include "attestd/client.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/epoll.h"
#include "base/memfd.h"
#include "base/system_error.h"
#include "base/unix_socket.h"
#include "leat/error.h"

namespace leat::attestd {

using leat::detail::check;
using leat::detail::Fd;
using leat::detail::MappedMemory;
using trusted::Verdict;
using trusted::detail::Reply;
using trusted::detail::Request;
using trusted::detail::RingSlot;

namespace {

// A client's turn ends after so many requests, or so many bytes of them.
constexpr int kTurnRequests = 8;
constexpr std::size_t kTurnBytes = std::size_t{64} << 10;

// Nobody can take memory away from it, so reading it cannot fail.
Fd make_file(std::size_t bytes) {
  Fd file(check(leat::detail::new_memfd("leat-attestd"), "memfd_create"));
  check(ftruncate(file.get(), static_cast<off_t>(bytes)), "ftruncate");
  check(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
        "fcntl(F_ADD_SEALS)");
  return file;
}

}  // namespace

Client::Client(Fd socket, uid_t user, const trusted::detail::RingShape& shape, Requests requests)
    : socket_(std::move(socket)),
      user_(user),
      shape_(shape),
      requests_(std::move(requests)),
      file_(make_file(shape.bytes())),
      wake_(leat::detail::new_event()),
      memory_(
          MappedMemory::of_file(file_.get(), shape.bytes(), MappedMemory::Protection::kReadWrite)),
      answered_(shape.slots) {}

bool Client::welcome(const trusted::detail::Welcome& welcome) noexcept try {
  const int descriptors[trusted::detail::kWelcomeDescriptors] = {file_.get(), wake_.get()};
  const bool sent =
      leat::detail::send_message(socket_.get(), trusted::detail::encode(welcome), descriptors);
  file_.reset();
  return sent;
} catch (const Error&) {
  return false;
}

bool Client::has_request_at(std::uint32_t slot) const noexcept {
  // Acquire: with the sequence this thread sees the request.
  return shape_.slot(memory_.data(), slot).request->sequence.load(std::memory_order_acquire) !=
         answered_[slot];
}

bool Client::has_request() const noexcept {
  for (std::uint32_t slot = 0; slot < shape_.slots; ++slot)
    if (has_request_at(slot)) return true;
  return false;
}

// A turn begins where the last one ended, so that no slot waits for another for ever.
bool Client::serve(std::span<std::byte> scratch) noexcept {
  std::size_t bytes = 0;
  int served = 0;
  for (std::uint32_t i = 0; i < shape_.slots; ++i) {
    if (served == kTurnRequests || bytes >= kTurnBytes) break;
    const std::uint32_t slot = next_;
    next_ = (next_ + 1) & (shape_.slots - 1);
    if (!has_request_at(slot)) continue;
    bytes += serve_slot(slot, scratch);
    ++served;
  }
  return served > 0;
}

std::size_t Client::serve_slot(std::uint32_t number, std::span<std::byte> scratch) noexcept {
  const RingSlot slot = shape_.slot(memory_.data(), number);
  // Before the request is read: a client that writes another one meanwhile has it served next.
  // Acquire: as above.
  const std::uint32_t sequence = slot.request->sequence.load(std::memory_order_acquire);
  // The client may write while we read: what counts is our copy.
  Request request;
  std::memcpy(&request, &slot.request->body, sizeof request);
  Reply reply;
  if (request.bytes > shape_.max_data_bytes()) {
    reply.verdict = static_cast<std::uint32_t>(Verdict::kTooLarge);
    request.bytes = 0;
  } else {
    const auto data = scratch.first(request.bytes);
    if (!data.empty()) std::memcpy(data.data(), slot.data, data.size());
    reply = requests_.answer(request, data, {slot.data, shape_.max_data_bytes()});
  }
  slot.reply->body = reply;
  // Release: a client that sees the sequence sees the reply.
  slot.reply->sequence.store(answered_[number] = sequence, std::memory_order_release);
  wake_waiter(slot);
  return request.bytes;
}

void Client::wake_waiter(const RingSlot& slot) noexcept {
  // With the client's between its word that it sleeps and its last look.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (slot.request->sleeping.load(std::memory_order_relaxed) == trusted::detail::kAwake) return;
  // The slot may have another waiter by now, which sleeps in another way: it must be woken for what
  // is taken from it here, and looks again.
  const std::uint32_t how =
      slot.request->sleeping.exchange(trusted::detail::kAwake, std::memory_order_relaxed);
  if (how == trusted::detail::kOnFutex) {
    syscall(SYS_futex, &slot.reply->sequence, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  } else {
    // An event would not do: a client could make it one that blocks its writers. Without room the
    // client has bytes to read, and does not sleep.
    const char byte = 0;
    static_cast<void>(send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  }
}

void Client::set_sleeping(bool sleeping) noexcept {
  trusted::detail::RingShape::daemon_sleeps(memory_.data())
      .store(sleeping ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace leat::attestd
