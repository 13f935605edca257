#include "attest/kernel_connection.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "attest/channel_kernel.h"
#include "base/quote.h"
#include "base/random.h"
#include "base/system_error.h"
#include "base/unix_socket.h"
#include "base/user_namespace.h"
#include "base/users.h"
#include "base/wire.h"
#include "leat/attest/identity.h"
#include "leat/error.h"
#include "net/stream.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::Clock;
using leat::detail::Fd;

// How often a waiter checks whether the daemon still lives: no event wakes a futex.
constexpr std::chrono::milliseconds kLookEvery{10};

Error no_daemon(const std::string& path, const std::string& why) {
  return {ErrorCode::kUnavailable, "leat-attestd at " + path + ": " + why,
          "Start it, or name the socket where it serves."};
}

Fd connect_to(const std::string& path) {
  const auto address = leat::detail::unix_address(path);
  if (!address) throw no_daemon(path, "the path is empty or too long for a socket");
  Fd socket(
      leat::detail::check(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket(AF_UNIX)"));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    throw no_daemon(path, std::generic_category().message(errno));
  return socket;
}

// Whoever may write in the socket's folder can serve there too, and would verify what it likes.
void check_server(int socket, const std::string& path, const std::string& user) {
  const auto server = leat::detail::peer_of(socket);
  if (!server) throw leat::detail::system_error("getsockopt(SO_PEERCRED)", errno);
  const uid_t own = geteuid();
  const std::string where = "leat-attestd at " + path + ": ";
  if (!leat::detail::is_one_user(server->uid))
    throw Error(ErrorCode::kAuthentication,
                where + "it is served by a user whom this user namespace does not map",
                "Let the daemon run as a user that is mapped here: a number that many users have "
                "proves nothing.");
  if (may_serve(server->uid, own, user)) return;
  std::string trusted = leat::detail::describe_user(0);
  if (own != 0) trusted += ", " + leat::detail::describe_user(own);
  if (!user.empty()) trusted += ", " + leat::detail::quoted(user);
  throw Error(ErrorCode::kAuthentication,
              where + "it is served by " + leat::detail::describe_user(server->uid) +
                  ", and trusted are only: " + trusted,
              "If that is the daemon's own user, set attest_kernel_user to it. If not, another "
              "program has taken the daemon's place.");
}

// So that the daemon, or an impostor, cannot take the memory away while it is in use.
bool is_sealed(int fd, std::size_t bytes) {
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) == bytes;
}

Request request_of(const Question& question, std::uint32_t kernel) {
  const Statement& statement = question.statement;
  Request request{.kind = static_cast<std::uint8_t>(statement.kind),
                  .kernel = kernel,
                  .bytes = static_cast<std::uint32_t>(question.bytes.size())};
  switch (question.asks) {
    case Question::Asks::kAttest:
      request.operation = static_cast<std::uint8_t>(Operation::kAttest);
      request.stream = statement.stream;
      request.session = statement.session;
      request.slot = statement.slot;
      request.offset = statement.offset;
      break;
    case Question::Asks::kVerify:
      request.operation = static_cast<std::uint8_t>(Operation::kVerify);
      break;
    case Question::Asks::kVerifyStateless:
      request.operation = static_cast<std::uint8_t>(Operation::kVerifyStateless);
      break;
  }
  return request;
}

// A number beyond all verdicts can only come from a daemon that broke the protocol.
Verdict verdict_of(const Reply& reply) {
  return static_cast<Verdict>(
      std::min(reply.verdict, static_cast<std::uint32_t>(Verdict::kUnavailable)));
}

Proof proof_of(const Reply& reply) {
  Proof proof;
  const auto data = std::span<const std::byte>(reply.data);
  std::ranges::copy(data.first<kHeaderBytes>(), proof.header.begin());
  std::ranges::copy(data.last<kMacSlotBytes>(), proof.mac.begin());
  return proof;
}

void set_answer(Question& question, const Reply& reply) {
  question.verdict = verdict_of(reply);
  if (question.verdict == Verdict::kOk) question.proof = proof_of(reply);
}

void refuse(std::span<Question> questions, Verdict why) {
  for (Question& question : questions) question.verdict = why;
}

void say_sleeping(const RingSlot& slot, std::uint32_t how) {
  slot.request->sleeping.store(how, std::memory_order_relaxed);
  // With the daemon's between its reply and its look at `sleeping`: one of us sees the other's.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

bool may_serve(uid_t server, uid_t own, const std::string& user) {
  return server == 0 || server == own || server == leat::detail::user_of(user);
}

KernelConnection::KernelConnection(const ExpectedDaemon& daemon, std::chrono::microseconds spin)
    : longest_spin_(spin), socket_(connect_to(daemon.path)) {
  check_server(socket_.get(), daemon.path, daemon.user);
  receive_welcome(daemon.path);
  owned_ = std::vector<Owned>(welcome_.shape.slots);
  if (!daemon.key.empty()) demand_proof(daemon);
}

KernelConnection::~KernelConnection() = default;

void KernelConnection::receive_welcome(const std::string& path) {
  leat::detail::wait_ready(socket_.get(), POLLIN, leat::detail::deadline_after(kPatience),
                           ("leat-attestd at " + path + " does not answer").c_str());
  std::array<std::byte, kWelcomeBytes> message{};
  std::vector<Fd> descriptors;
  const auto received =
      leat::detail::receive_message(socket_.get(), message, kWelcomeDescriptors, descriptors);
  if (received != leat::detail::ReceiveMessage::kMessage)
    throw no_daemon(path, "it closed the connection");
  const auto welcome = decode_welcome(message);
  if (!welcome)
    throw Error(ErrorCode::kVersion, path + " is not a leat-attestd of this version",
                "Use the same release of leat for both.");
  if (welcome->answer == Welcome::Answer::kFull)
    throw Error(ErrorCode::kResource, "leat-attestd at " + path + " serves as many as it may",
                "See --max-clients and --max-clients-per-user of leat-attestd.");
  if (welcome->answer == Welcome::Answer::kStranger)
    throw Error(ErrorCode::kAuthentication,
                "leat-attestd at " + path + " has no session for this user",
                "See --allow of leat-attestd.");
  welcome_ = *welcome;
  const std::size_t bytes = welcome_.shape.bytes();
  if (descriptors.size() != kWelcomeDescriptors || !is_sealed(descriptors[0].get(), bytes))
    throw Error(ErrorCode::kProtocol, path + " gives memory that can be taken away");
  memory_ = leat::detail::MappedMemory::of_file(descriptors[0].get(), bytes,
                                                leat::detail::MappedMemory::Protection::kReadWrite);
  wake_ = std::move(descriptors[1]);
}

void KernelConnection::demand_proof(const ExpectedDaemon& daemon) {
  const auto refuse = [&](const std::string& why, const std::string& advice) {
    throw Error(ErrorCode::kAuthentication, "leat-attestd at " + daemon.path + ": " + why, advice);
  };
  const Nonce nonce = fresh_nonce();
  Reply reply;
  const Verdict verdict =
      ask({.operation = static_cast<std::uint8_t>(Operation::kProve)}, nonce, reply);
  if (verdict != Verdict::kOk)
    refuse("it does not prove its key: " + std::string(to_string(verdict)),
           "A daemon of a controller needs a reply key; another program has none.");
  leat::detail::WireReader reader(reply.data);
  PublicKey key;
  std::ranges::copy(reader.bytes(key.size()), key.begin());
  const std::string text = leat::detail::hex(key);
  if (text != daemon.key)
    refuse("it has the key " + text + ", and attest_kernel_key is " + daemon.key,
           "If the daemon was given another key, set attest_kernel_key to that. If not, another "
           "program has taken the daemon's place.");
  const auto server = leat::detail::peer_of(socket_.get());
  const std::uint64_t numbers = leat::detail::pid_namespace();
  constexpr PartyId kDaemon = 1;
  if (!server || numbers == 0 ||
      !Directory({{.id = kDaemon, .key = key, .address = {}}})
           .verify(kDaemon, to_be_proven(nonce, static_cast<std::uint32_t>(server->pid), numbers),
                   reader.bytes(std::tuple_size_v<Signature>)) ||
      !leat::detail::peer_may_live(socket_.get()))
    refuse("the process that serves there does not prove that the key " + text + " is its own",
           "Another program may have taken the daemon's place, and pass on what the daemon says. "
           "Or the daemon is in another PID namespace: then this cannot be proven.");
}

Verdict KernelConnection::ask(Request request, std::span<const std::byte> data,
                              Reply& reply) noexcept {
  if (data.size() > welcome_.shape.max_data_bytes()) return Verdict::kTooLarge;
  Ticket ticket, patience;
  wait(
      patience, [&] { return !usable() || claim(ticket); }, [] { sched_yield(); });
  if (!made_here_) return Verdict::kForked;
  if (!usable() || !ticket.under_way()) return Verdict::kUnavailable;
  if (!data.empty()) std::memcpy(slot_of(ticket).data, data.data(), data.size());
  post(ticket, request, data.size());
  wait_for_reply(ticket);
  if (!answered(ticket)) return Verdict::kUnavailable;
  const Reply answer = reply_of(ticket);
  release(ticket);
  const Verdict verdict = verdict_of(answer);
  if (verdict == Verdict::kOk) reply = answer;
  return verdict;
}

void KernelConnection::ask(std::uint32_t kernel, std::span<Question> questions) noexcept {
  while (!questions.empty()) {
    Ticket ticket, patience;
    std::size_t begun = 0;
    const auto begins = [&] { return (begun = begin(kernel, questions, ticket)) != 0; };
    wait(patience, begins, [] { sched_yield(); });
    if (begun == 0 && !begins()) continue;  // the connection has just died: now it is refused
    if (ticket.under_way()) wait_for_reply(ticket);
    while (!try_finish(ticket, questions.first(begun))) continue;
    questions = questions.subspan(begun);
  }
}

std::size_t KernelConnection::begin(std::uint32_t kernel, std::span<Question> questions,
                                    Ticket& ticket) noexcept {
  const auto asked = questions.first(fitting(questions));
  if (!usable()) {
    refuse(asked, made_here_ ? Verdict::kUnavailable : Verdict::kForked);
  } else if (!fits(asked.front())) {
    refuse(asked, Verdict::kTooLarge);
  } else if (!claim(ticket)) {
    return 0;
  } else if (asked.size() == 1) {
    const auto bytes = asked.front().bytes;
    if (!bytes.empty()) std::memcpy(slot_of(ticket).data, bytes.data(), bytes.size());
    post(ticket, request_of(asked.front(), kernel), bytes.size());
  } else {
    std::byte* const start = slot_of(ticket).data;
    std::byte* place = start;
    for (const Question& question : asked) {
      const Request request = request_of(question, kernel);
      std::memcpy(place, &request, sizeof request);
      place += sizeof request;
      if (question.bytes.empty()) continue;
      std::memcpy(place, question.bytes.data(), question.bytes.size());
      place += question.bytes.size();
    }
    post(ticket, {.operation = static_cast<std::uint8_t>(Operation::kSeveral)},
         static_cast<std::size_t>(place - start));
  }
  return asked.size();
}

bool KernelConnection::try_finish(Ticket& ticket, std::span<Question> questions) noexcept {
  if (!ticket.under_way()) return true;
  // What a child of fork() sees there is its parent's.
  if (!made_here_ || !answered(ticket)) {
    if (patient(ticket, Clock::now())) return false;
    if (!made_here_ || !answered(ticket)) {
      refuse(questions, made_here_ ? Verdict::kUnavailable : Verdict::kForked);
      ticket = {};
      return true;
    }
  }
  const Reply reply = reply_of(ticket);
  const Verdict verdict = verdict_of(reply);
  if (questions.size() == 1 || verdict != Verdict::kOk) {
    for (Question& question : questions) set_answer(question, reply);
  } else {
    const std::byte* place = slot_of(ticket).data;
    for (Question& question : questions) {
      Reply one;
      std::memcpy(&one, place, sizeof one);
      place += sizeof one;
      set_answer(question, one);
    }
  }
  release(ticket);
  return true;
}

bool KernelConnection::answered(const Ticket& ticket) const noexcept {
  // Acquire: with the sequence this thread sees the reply.
  return slot_of(ticket).reply->sequence.load(std::memory_order_acquire) == ticket.sequence;
}

void KernelConnection::drop(Ticket& ticket) noexcept {
  if (!ticket.under_way()) return;
  // Release: the next holder writes to the slot after this one.
  owned_[ticket.slot].word.store(word_of(ticket.sequence, kDropped), std::memory_order_release);
  ticket = {};
}

bool KernelConnection::fits(const Question& question) const noexcept {
  const RingShape& shape = welcome_.shape;
  return question.bytes.size() <= (question.asks == Question::Asks::kAttest
                                       ? std::size_t{shape.max_payload_bytes}
                                       : shape.max_data_bytes());
}

std::size_t KernelConnection::fitting(std::span<const Question> questions) const noexcept {
  const std::size_t room = welcome_.shape.max_data_bytes();
  const std::size_t most = std::min({questions.size(), kMostAtOnce, room / sizeof(Reply)});
  std::size_t count = 0;
  for (std::size_t bytes = 0; count < most; ++count) {
    bytes += sizeof(Request) + questions[count].bytes.size();
    if (bytes > room || !fits(questions[count])) break;
  }
  return std::max(count, std::size_t{1});
}

RingSlot KernelConnection::slot_of(const Ticket& ticket) const noexcept {
  return welcome_.shape.slot(memory_.data(), ticket.slot);
}

bool KernelConnection::claim(Ticket& ticket) noexcept {
  for (std::uint32_t slot = 0; slot < owned_.size(); ++slot) {
    std::atomic<std::uint64_t>& word = owned_[slot].word;
    // Acquire, here and at the exchange: the holder before has read and written what it wanted.
    std::uint64_t seen = word.load(std::memory_order_acquire);
    const auto before = static_cast<std::uint32_t>(seen >> 2);
    const bool dropped = (seen & 3) == kDropped;
    if ((seen & 3) == kTaken || (dropped && !answered({.slot = slot, .sequence = before})))
      continue;
    if (!word.compare_exchange_strong(seen, word_of(before + 1, kTaken), std::memory_order_acquire))
      continue;
    ticket = {.slot = slot, .sequence = before + 1};
    return true;
  }
  return false;
}

void KernelConnection::post(const Ticket& ticket, Request request, std::size_t bytes) noexcept {
  const RingSlot slot = slot_of(ticket);
  request.bytes = static_cast<std::uint32_t>(bytes);
  slot.request->body = request;
  // Release: a daemon that sees the sequence sees the request.
  slot.request->sequence.store(ticket.sequence, std::memory_order_release);
  wake_daemon();
}

Reply KernelConnection::reply_of(const Ticket& ticket) noexcept {
  const Reply reply = slot_of(ticket).reply->body;
  if (reply.verdict > static_cast<std::uint32_t>(Verdict::kUnavailable))
    dead_.store(true, std::memory_order_relaxed);
  return reply;
}

void KernelConnection::release(Ticket& ticket) noexcept {
  // Release: the next holder finds the slot unused.
  owned_[ticket.slot].word.store(word_of(ticket.sequence, kFree), std::memory_order_release);
  ticket = {};
}

void KernelConnection::arm(const Ticket& ticket) noexcept {
  say_sleeping(slot_of(ticket), kOnSocket);
}

bool KernelConnection::take_wakes() noexcept {
  // Limited, because a daemon that floods must not hold the caller.
  constexpr int kMost = 64;
  bool any = false;
  for (int i = 0; i < kMost; ++i) {
    char byte = 0;
    const ssize_t received = recv(socket_.get(), &byte, sizeof byte, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (received <= 0) {
      dead_.store(true, std::memory_order_relaxed);
      break;
    }
    any = true;
  }
  return any;
}

void KernelConnection::wait_for_reply(Ticket& ticket) noexcept {
  const RingSlot slot = slot_of(ticket);
  wait(
      ticket, [&] { return answered(ticket); },
      [&] {
        say_sleeping(slot, kOnFutex);
        const std::uint32_t before = slot.reply->sequence.load(std::memory_order_acquire);
        if (before == ticket.sequence) return;
        const timespec limit{0, std::chrono::nanoseconds(kLookEvery).count()};
        syscall(SYS_futex, &slot.reply->sequence, FUTEX_WAIT, before, &limit, nullptr, 0);
      });
}

bool KernelConnection::patient(Ticket& ticket, Clock::time_point now) noexcept {
  if (ticket.asked == Clock::time_point{}) {
    ticket.asked = now;
    ticket.look = now + kLookEvery;
  }
  if (now >= ticket.look) {
    // An answer that was given before the daemon ended counts.
    const bool ended = daemon_ended() || now - ticket.asked > kPatience;
    if (ended && !(ticket.under_way() && answered(ticket)))
      dead_.store(true, std::memory_order_relaxed);
    ticket.look = now + kLookEvery;
  }
  return usable();
}

// Spins, then sleeps again and again, until it is ready or patience is over.
template <typename Ready, typename Sleep>
void KernelConnection::wait(Ticket& ticket, const Ready& ready, const Sleep& sleep) noexcept {
  leat::detail::Spin spin(spin_, longest_spin_);
  while (spin.again()) {
    if (ready()) {
      spin.found();
      return;
    }
    if (spin.looked() && !patient(ticket, spin.now())) return;
  }
  while (!ready() && patient(ticket, Clock::now())) sleep();
}

void KernelConnection::wake_daemon() noexcept {
  std::atomic<std::uint32_t>& sleeps = RingShape::daemon_sleeps(memory_.data());
  std::atomic_thread_fence(std::memory_order_seq_cst);  // with the daemon's before it sleeps
  if (sleeps.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  sleeps.store(0, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  // Full: it is awake.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

bool KernelConnection::daemon_ended() noexcept {
  return leat::detail::socket_peer_closed(socket_.get());
}

}  // namespace leat::trusted::detail
