#include "preload/meeting.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "preload/configuration.h"
#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/kept_memory.h"
#include "preload/listener.h"
#include "preload/marks.h"
#include "preload/meeting_policy.h"
#include "preload/offer.h"
#include "preload/offering.h"
#include "preload/real.h"
#include "preload/rings.h"
#include "preload/short_connections.h"
#include "preload/signal_watch.h"
#include "preload/socket_facts.h"
#include "preload/undisturbed.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using Clock = std::chrono::steady_clock;

// How long accept() waits for an offer, and what cannot go on without: short, because any user of
// this host can announce one and make none.
constexpr auto kAcceptPatience = std::chrono::milliseconds(10);
constexpr auto kAfterDisappointment = std::chrono::milliseconds(1);
constexpr auto kPassPatience = std::chrono::milliseconds(50);
// How long to look for an offer that the connector says it has made: another acceptor may hold it,
// and may have been stopped, or killed with it.
constexpr auto kOfferTimeout = std::chrono::seconds(2);
constexpr auto kEndedTimeout = std::chrono::milliseconds(50);

// What every carried connection's kernel socket needs.
void prepare_doorbell(int fd, Object& object) {
  // Doorbells must not wait for each other's acknowledgement (Nagle).
  if (option(fd, IPPROTO_TCP, TCP_NODELAY) > 0)
    object.connection.own().tcp.flags.fetch_or(kNoDelay, std::memory_order_relaxed);
  if (option(fd, IPPROTO_TCP, TCP_CORK) > 0) {
    object.connection.own().tcp.flags.fetch_or(kCork, std::memory_order_relaxed);
    set_option(fd, IPPROTO_TCP, TCP_CORK, 0);
  }
  if (resets_at_close(fd)) object.connection.shown().aborts.store(1, std::memory_order_relaxed);
  object.connection.is_in_table();
  const Buffers buffers = program_buffers(fd);
  object.connection.set_buffers(buffers.send, buffers.receive);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const std::uint64_t cookie = cookie_of(fd);
  object.connection.own().cookie.store(cookie, std::memory_order_relaxed);
  object.connection.shown().cookie.store(cookie, std::memory_order_relaxed);
}

void stay_with_tcp(int fd, const char* why) {
  if (log_enabled(Level::kInfo))
    log(Level::kInfo, "%s - %s: TCP (%s)", local_address(fd).text().c_str(),
        peer_address(fd).text().c_str(), why);
}

// The connector has left its offer: one byte, a doorbell that wakes an acceptor if the offer is
// late, and lets it distinguish a lost offer from one that is still to come.
void tell_offered(int fd) {
  system_call(SYS_sendto, fd, &kRing, 1, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}

// Whether an offer that the connector has made has not been found for so long that it is lost.
bool is_lost(int fd, Object& socket) {
  int bytes = 0;
  if (real().ioctl(fd, FIONREAD, &bytes) != 0 || bytes == 0) return false;
  const std::int64_t now = Clock::now().time_since_epoch().count();
  std::int64_t due = 0;
  // Relaxed: only the time counts, and the first to set it.
  if (socket.due.compare_exchange_strong(due, now, std::memory_order_relaxed)) due = now;
  return now - due > std::chrono::nanoseconds(kOfferTimeout).count();
}

// Shuts a connection down that can neither be carried nor be TCP.
void give_up(int fd, Object& object, const char* why) {
  log(Level::kWarn, "%s: %s; the connection is shut down", peer_address(fd).text().c_str(), why);
  real().shutdown(fd, SHUT_RDWR);
  // These bytes are not the program's.
  system_call(SYS_recvfrom, fd, nullptr, kRingBytes, MSG_DONTWAIT | MSG_TRUNC, nullptr, nullptr);
  object.connecting.store(false, std::memory_order_release);
}

// In a folder, where the policy decides. A refusal may come from a user that it may allow.
bool hear_in_folder(const Object& listener, int fd, Offer& offer, int& memfd) {
  const std::string folder = folder_of_place(listener.meeting_fd);
  const Party owner = party_at(listener.meeting_fd);
  const Party sender = party_at(fd);
  // Our own was heard before, by the process that gives it back.
  const bool ours = sender.user == geteuid();
  const auto why_not = [&](const Party& party) {
    return ours ? nullptr : why_not_meet(folder.c_str(), party, owner, listener.port);
  };
  // Strangers are not waited for.
  if (why_not(party_of_user(sender.user)) != nullptr || !receive_offer(fd, offer, memfd))
    return false;
  const char* why = offer.refused != 0 ? nullptr : why_not(sender);
  if (why != nullptr) log(Level::kWarn, "an offer of user %u is not taken: %s", sender.user, why);
  return why == nullptr;
}

// Takes the word of a process that has come to the meeting place. An offer must come from root,
// from the listener's user, or from our own user, whose other process gave it back; a refusal may
// come from any user that the SYN may have named. Other processes are not waited for.
bool hear(const Object& listener, int fd, unsigned code, Offer& offer, int& memfd) {
  memfd = -1;
  if (is_in_folder(listener.code)) return hear_in_folder(listener, fd, offer, memfd);
  ucred sender{};
  socklen_t bytes = sizeof(sender);
  if (real().getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &sender, &bytes) != 0) return false;
  const bool trusted = is_trusted(sender.uid, listener.owner) || is_trusted(sender.uid, geteuid());
  if (!trusted && user_code(sender.uid) != code) return false;
  return receive_offer(fd, offer, memfd) && (trusted || offer.refused != 0);
}

enum class Taken { kOffer, kRefusal, kNothing, kEnded };

// Takes the offer for this connection from the queue, waiting for it if need be.
Taken take_offer(const Object& listener, int fd, const Object& socket, Clock::duration patience,
                 Offer& taken, int& memfd, std::optional<SpareNumbers>& spare) {
  const Address acceptor = local_address(fd);
  auto deadline = Clock::now() + patience;
  bool ended = false;
  HeldOffers held(listener.meeting_fd);
  // The offer follows the handshake in some microseconds, as a rule.
  Spin spin;
  for (bool again = true; again || Clock::now() < deadline;) {
    again = false;
    const int meeting =
        real().accept4(listener.meeting_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (meeting < 0 && errno == EMFILE) {
      if (spare) return Taken::kNothing;
      spare.emplace();
      again = true;
      continue;
    }
    if (meeting < 0) {
      if (!held.empty()) {
        held.give_back();
        // Another acceptor holds ours. Threads that met here should not meet again.
        usleep(50 + thread_id() % 16 * 50);
        continue;
      }
      if (patience != Clock::duration::zero() && spin.again()) continue;
      spin.signal();
      pollfd waits[2] = {{.fd = listener.meeting_fd, .events = POLLIN},
                         {.fd = fd, .events = POLLRDHUP}};
      real().poll(waits, 2, patience == Clock::duration::zero() ? 0 : 1);
      // Closed, or killed before its offer. Another acceptor may still hold the offer.
      if (!ended && (waits[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        ended = true;
        deadline = Clock::now() + kEndedTimeout;
      }
      if (ended) usleep(1000);
      continue;
    }
    // Memory that finds no number is lost with its message.
    if (!spare && !number_is_free(meeting)) spare.emplace();
    Offer offer{};
    const bool good = hear(listener, meeting, socket.connector_code, offer, memfd);
    real().close(meeting);
    const bool right = good && offer.connector == socket.connector && offer.acceptor == acceptor;
    if (right && offer.refused != 0) return Taken::kRefusal;
    if (right && memfd >= 0) {
      spin.found();
      taken = offer;
      return Taken::kOffer;
    }
    if (good && !right) {
      held.keep(offer, memfd);
      again = true;  // also without patience: ours may be the next in the queue
    } else if (memfd >= 0) {
      real().close(memfd);
    }
  }
  return ended ? Taken::kEnded : Taken::kNothing;
}

bool accept_memory(int fd, Object& object, int memfd) {
  int hidden = -1;
  if (SharedMemory* kept = find_kept_memory(memfd, hidden); kept != nullptr) {
    real().close(memfd);
    if (!object.connection.attach(kept, 1, hidden)) {
      munmap(kept, kMemoryBytes);
      close_hidden(hidden);
      return false;
    }
  } else if (attach_memory(object, memfd, 1)) {
    object.connection.keep_open(hide(memfd));
  } else {
    real().close(memfd);
    return false;
  }
  object.made_at = object.forked.load(std::memory_order_relaxed) ? 0 : memory_generation();
  prepare_doorbell(fd, object);
  object.kind.store(Kind::kConnection, std::memory_order_release);
  if (log_enabled(Level::kInfo))
    log(Level::kInfo, "%s - %s: carried through shared memory", local_address(fd).text().c_str(),
        object.connector.text().c_str());
  return true;
}

// The last offer that was waited for did not come in time.
std::atomic<bool> disappointed{false};

// How many accepted sockets may await theirs; those that were closed before are counted too.
std::atomic<int> awaiting{0};

// Of several threads, only one decides; the others go on as if it were not decided yet. Signals are
// held until it has: their handlers may use the socket, and would wait for what they interrupt.
class Deciding {
 public:
  explicit Deciding(Object& object) noexcept : process_(object.deciding) {
    std::uint32_t before = process_.load(std::memory_order_relaxed);
    ours_ = before != process_id() &&
            process_.compare_exchange_strong(before, process_id(), std::memory_order_acq_rel);
  }
  ~Deciding() {
    if (ours_) process_.store(0, std::memory_order_release);
  }
  Deciding(const Deciding&) = delete;
  Deciding& operator=(const Deciding&) = delete;
  bool ours() const noexcept { return ours_; }

 private:
  const SignalWatch watch_;  // begins before the process is set and ends after
  std::atomic<std::uint32_t>& process_;
  bool ours_ = false;
};

// Applies what the program did meanwhile to a socket that is decided now.
void catch_up(int fd, Object& socket) {
  if (!socket.shut.exchange(false, std::memory_order_relaxed)) return;
  if (socket.kind.load(std::memory_order_relaxed) == Kind::kConnection) {
    socket.connection.shutdown(fd, SHUT_WR);
  } else {
    real().shutdown(fd, SHUT_WR);
  }
}

// Of an accepted socket that is decided now.
void end_awaiting(int fd, Reference& socket) {
  const Reference listener(std::exchange(socket->awaited_at, nullptr));
  awaiting.fetch_sub(1, std::memory_order_relaxed);
  catch_up(fd, *socket);
  EpollSet::socket_is_decided(fd, socket.get());
}

// Whether it is decided now, one way or the other.
bool await_offer(int fd, Reference& socket, Clock::duration patience) {
  const Deciding deciding(*socket);
  if (!deciding.ours()) return false;
  if (!socket.awaits_offer()) return true;
  int memfd = -1;
  Offer offer{};
  std::optional<SpareNumbers> spare;
  switch (take_offer(*socket->awaited_at, fd, *socket, patience, offer, memfd, spare)) {
    case Taken::kNothing:
      if (!is_lost(fd, *socket)) return false;
      give_up(fd, *socket, "its offer of shared memory is lost");
      break;
    case Taken::kOffer:
      if (socket->forked.load(std::memory_order_relaxed))
        leave_copy(offer, memfd, socket->awaited_at->meeting_fd);
      if (!accept_memory(fd, *socket, memfd))
        give_up(fd, *socket, "the shared memory that it offered cannot be used");
      break;
    case Taken::kRefusal:
      stay_with_tcp(fd, "the peer cannot share memory");
      socket->connecting.store(false, std::memory_order_release);
      break;
    case Taken::kEnded:  // as the kernel will tell the program
      socket->connecting.store(false, std::memory_order_release);
      break;
  }
  end_awaiting(fd, socket);
  return true;
}

// Whether everything is available that it takes to carry a connection to that address.
bool can_offer(int fd, Reference& socket, const sockaddr_storage& address) noexcept {
  if (too_few_numbers() || has_ring()) return false;
  // With fast open the connection begins with the first bytes, before anything could be agreed.
  if (option(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT) > 0) return false;
  if (!socket) socket = add(fd, Kind::kSocket);
  if (!socket) return false;
  // Made now: later the process may be out of descriptors, and the other end would wait in vain.
  if (socket->meeting_fd < 0) {
    const int meeting = unix_socket();
    socket->meeting_fd = meeting < 0 ? -1 : hide(meeting);
  }
  if (socket->meeting_fd < 0) return false;
  socket->places = {};
  if (meeting_folder() != nullptr) socket->places = places_for(fd, Address::from(address));
  socket->in_folder.store(socket->places.count != 0, std::memory_order_relaxed);
  return true;
}

// Where the offer of a socket that has connected is to be left; -1: nowhere.
int code_to_offer_by(const tcp_info& info, const Object& socket) {
  if (info.tcpi_state == TCP_CLOSE) return -1;
  const int code = listener_code(info);
  const bool in_folder = socket.in_folder.load(std::memory_order_relaxed);
  if (code < 0 || is_in_folder(static_cast<unsigned>(code)) != in_folder) return -1;
  if (!in_folder) return code;
  // A route that lets no such size pass has changed what our SYN said.
  const bool marked = sent_connector_code(info) == kOffersInFolder;
  return marked && socket.places.with(static_cast<unsigned>(code)).code != 0 ? code : -1;
}

}  // namespace

bool attach_memory(Object& object, int memfd, unsigned side, const EndHold& end) noexcept {
  const off_t bytes = lseek(memfd, 0, SEEK_END);
  if (!is_sealed(memfd) || bytes != static_cast<off_t>(kMemoryBytes)) return false;
  void* memory =
      mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  if (memory == MAP_FAILED) return false;
  auto* header = static_cast<SharedMemory*>(memory);
  if (header->is_ours() && object.connection.attach(header, side, -1, end)) return true;
  munmap(memory, kMemoryBytes);
  return false;
}

bool before_connect(int fd, Reference& socket, const sockaddr* address, socklen_t bytes) noexcept {
  const Undisturbed undisturbed;
  sockaddr_storage storage{};
  if (address == nullptr || bytes > sizeof(storage) || bytes < sizeof(sockaddr_in)) return false;
  std::memcpy(&storage, address, bytes);
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) return false;
  if (socket && (!socket.is(Kind::kSocket) || socket->connecting.load(std::memory_order_acquire)))
    return false;
  const bool attempted = static_cast<bool>(socket);
  if (!is_wanted(storage) || option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP ||
      !can_offer(fd, socket, storage)) {
    // The mark of this process's attempt at another place would make the other end wait in vain.
    if (attempted && connector_code(option(fd, IPPROTO_TCP, TCP_MAXSEG)) >= 0)
      set_option(fd, IPPROTO_TCP, TCP_MAXSEG, 0);
    return false;
  }
  const int code = socket->in_folder.load(std::memory_order_relaxed)
                       ? kOffersInFolder
                       : static_cast<int>(user_code(geteuid()));
  set_option(fd, IPPROTO_TCP, TCP_MAXSEG, connector_size(code));
  return true;
}

void decide(int fd, Reference& socket) noexcept {
  const Undisturbed undisturbed;
  if (socket.awaits_offer()) {
    await_offer(fd, socket, Clock::duration::zero());
    return;
  }
  if (!socket.is_undecided() || socket->meeting_fd < 0) return;
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (real().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
  if (socket.is_to_connect(info.tcpi_state)) return;
  const Deciding deciding(*socket);
  if (!deciding.ours() || !socket.is_undecided()) return;
  const int place = std::exchange(socket->meeting_fd, -1);
  const int code = code_to_offer_by(info, *socket);
  const char* why = "the peer is not under leat-run";
  // The acceptor shuts nothing down before it has the offer, so then nobody is there any more.
  const bool closed = info.tcpi_state == TCP_CLOSE_WAIT;
  if (closed) why = "the peer has closed it";
  auto offered = Offered::kNothing;
  if (code >= 0 && !closed)
    offered = offer_memory(fd, *socket, place, static_cast<unsigned>(code), why);
  close_hidden(place);
  if (offered == Offered::kMemory) {
    prepare_doorbell(fd, *socket);
    tell_offered(fd);
    socket->kind.store(Kind::kConnection, std::memory_order_release);
    EpollSet::socket_is_decided(fd, socket.get());
    if (log_enabled(Level::kInfo))
      log(Level::kInfo, "%s - %s: carried through shared memory", local_address(fd).text().c_str(),
          peer_address(fd).text().c_str());
    return;
  }
  if (offered == Offered::kUndelivered) {
    give_up(fd, *socket, why);
    return;
  }
  const int size = static_cast<int>(info.tcpi_snd_mss);
  const bool refused = info.tcpi_state == TCP_CLOSE;  // it may be used for another attempt
  if (!refused && code < 0) {
    if (socket->in_folder.load(std::memory_order_relaxed)) {
      refuse_in_folder(fd, socket->places);
    } else if (may_be_cut(size) && is_local(peer_address(fd), local_address(fd))) {
      refuse_everywhere(fd, kCodes);
    }
  }
  socket->connecting.store(false, std::memory_order_release);
  if (!refused) stay_with_tcp(fd, why);
}

void decide_now(int fd, Reference& socket) noexcept {
  const Undisturbed undisturbed;
  decide(fd, socket);
  if (!socket.awaits_offer() || await_offer(fd, socket, kPassPatience)) return;
  const Deciding deciding(*socket);
  if (!deciding.ours() || !socket.awaits_offer()) return;
  give_up(fd, *socket, "it announced shared memory, but has not offered it");
  end_awaiting(fd, socket);
}

bool shut_undecided(int fd, Reference& socket, int how) noexcept {
  const Undisturbed undisturbed;
  decide(fd, socket);
  if (how == SHUT_RD || !socket.awaits_offer()) return false;
  if (how == SHUT_WR) {
    socket->shut.store(true, std::memory_order_relaxed);
    // Decided in between by another thread, which may have looked for it before.
    if (!socket.awaits_offer()) catch_up(fd, *socket);
    return true;
  }
  const Deciding deciding(*socket);
  if (!deciding.ours() || !socket.awaits_offer()) return false;
  real().shutdown(fd, SHUT_RDWR);
  socket->connecting.store(false, std::memory_order_release);
  end_awaiting(fd, socket);
  return true;
}

bool after_accept(const Reference& listener, int listening, int fd,
                  const sockaddr_storage& peer) noexcept {
  const Undisturbed undisturbed;
  const int code = connector_code_of_syn(fd);
  const bool in_folder = is_in_folder(listener->code);
  const int receive_buffer = listener->receive_buffer.load(std::memory_order_relaxed);
  // Whose number it is counts where the listener does: what is not marked is the kernel's, whoever
  // accepted it. If it was closed in our sight, it is still the listener at which this call waited.
  if ((code >= 0 || receive_buffer > 0) && !is_current(listening, *listener) &&
      (forget_lost(listening, *listener) || local_address(fd).port != listener->port))
    return true;
  if (receive_buffer > 0) set_option(fd, SOL_SOCKET, SO_RCVBUF, receive_buffer);
  if (code < 0 || in_folder != (code == kOffersInFolder)) {
    stay_with_tcp(fd, code < 0 ? "the peer is not under leat-run" : "the peer meets elsewhere");
    return true;
  }
  if (!in_folder && !is_of_this_host(peer, local_address(fd))) {
    stay_with_tcp(fd, "the peer is on another host");
    return true;
  }
  if (!in_folder && static_cast<unsigned>(code) != user_code(listener->owner) &&
      static_cast<unsigned>(code) != user_code(0)) {
    stay_with_tcp(fd, "the peer belongs to another user");
    return true;
  }
  Reference socket = add(fd, Kind::kSocket);
  if (!socket) return false;
  listener->references.fetch_add(1, std::memory_order_relaxed);  // we hold one
  socket->awaited_at = listener.get();
  socket->connector = Address::from(peer);
  socket->connector_code = static_cast<unsigned>(code);
  socket->in_folder.store(in_folder, std::memory_order_relaxed);
  socket->connecting.store(true, std::memory_order_release);
  awaiting.fetch_add(1, std::memory_order_relaxed);
  // Relaxed: a hint.
  const bool hopes = !disappointed.load(std::memory_order_relaxed);
  const bool came = await_offer(fd, socket, hopes ? kAcceptPatience : kAfterDisappointment);
  if (came != hopes) disappointed.store(!came, std::memory_order_relaxed);
  return true;
}

void decide_before_fork() noexcept {
  share_all_memory();
  if (awaiting.load(std::memory_order_relaxed) == 0) return;
  const Undisturbed undisturbed;
  for_each(0, highest_known(), [](int fd, const Reference&) {
    Reference socket = find(fd);
    if (!socket.awaits_offer()) return;
    await_offer(fd, socket, Clock::duration::zero());
    if (!socket.awaits_offer()) return;
    // The process that takes the offer leaves a copy for the other, and they share one state.
    socket->connection.prepare();
    socket->forked.store(true, std::memory_order_relaxed);
  });
}

}  // namespace leat::preload
