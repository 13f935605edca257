#include "attest/kernel_connection.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/system_error.h"
#include "base/unix_socket.h"
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
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    throw no_daemon(path, "the path is empty or too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd socket(
      leat::detail::check(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket(AF_UNIX)"));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw no_daemon(path, std::generic_category().message(errno));
  return socket;
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

}  // namespace

KernelConnection::KernelConnection(const std::string& path, std::chrono::microseconds spin)
    : longest_spin_(spin), socket_(connect_to(path)) {
  receive_welcome(path);
  turns_ = std::vector<Turn>(welcome_.shape.slots);
  for (std::size_t i = 0; i < turns_.size(); ++i) turns_[i].next = i;
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

Verdict KernelConnection::ask(Request request, std::span<const std::byte> data,
                              Reply& reply) noexcept {
  return exchange(
      request, data.size(),
      [&](std::byte* place) {
        if (!data.empty()) std::memcpy(place, data.data(), data.size());
      },
      [&](const std::byte*, const Reply& answer) { reply = answer; });
}

void KernelConnection::ask(std::uint32_t kernel, std::span<Question> questions) noexcept {
  while (!questions.empty()) {
    const auto asked = questions.first(fitting(questions));
    questions = questions.subspan(asked.size());
    if (asked.size() == 1) {
      Question& question = asked.front();
      if (!fits(question)) {
        question.verdict = Verdict::kTooLarge;
        continue;
      }
      Reply reply;
      question.verdict = ask(request_of(question, kernel), question.bytes, reply);
      if (question.verdict == Verdict::kOk) question.proof = proof_of(reply);
      continue;
    }
    std::size_t bytes = 0;
    for (const Question& question : asked) bytes += sizeof(Request) + question.bytes.size();
    const auto fill = [&](std::byte* place) {
      for (const Question& question : asked) {
        const Request request = request_of(question, kernel);
        std::memcpy(place, &request, sizeof request);
        place += sizeof request;
        if (question.bytes.empty()) continue;
        std::memcpy(place, question.bytes.data(), question.bytes.size());
        place += question.bytes.size();
      }
    };
    const auto take = [&](const std::byte* place, const Reply&) {
      for (Question& question : asked) {
        Reply reply;
        std::memcpy(&reply, place, sizeof reply);
        place += sizeof reply;
        question.verdict = verdict_of(reply);
        if (question.verdict == Verdict::kOk) question.proof = proof_of(reply);
      }
    };
    const auto several = static_cast<std::uint8_t>(Operation::kSeveral);
    const Verdict verdict = exchange({.operation = several}, bytes, fill, take);
    if (verdict != Verdict::kOk)
      for (Question& question : asked) question.verdict = verdict;
  }
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

template <typename Fill, typename Take>
Verdict KernelConnection::exchange(Request request, std::size_t bytes, const Fill& fill,
                                   const Take& take) noexcept {
  if (dead_.load(std::memory_order_relaxed) || !made_here_) return Verdict::kUnavailable;
  if (bytes > welcome_.shape.max_data_bytes()) return Verdict::kTooLarge;
  const std::uint64_t ticket = tickets_.fetch_add(1, std::memory_order_relaxed);
  Turn& turn = turns_[ticket % turns_.size()];
  if (!wait_for_turn(turn, ticket)) return Verdict::kUnavailable;

  const auto sequence = static_cast<std::uint32_t>(ticket + 1);
  const RingSlot slot = welcome_.shape.slot(memory_.data(), static_cast<std::uint32_t>(ticket));
  request.bytes = static_cast<std::uint32_t>(bytes);
  slot.request->body = request;
  fill(slot.data);
  // Release: a daemon that sees the sequence sees the request.
  slot.request->sequence.store(sequence, std::memory_order_release);
  wake_daemon();
  if (!wait_for_reply(slot, sequence)) return Verdict::kUnavailable;

  const Reply copy = slot.reply->body;
  const Verdict verdict = verdict_of(copy);
  if (verdict == Verdict::kOk) take(slot.data, copy);
  // Release: the caller with the next turn finds the slot unused.
  turn.next.store(ticket + turns_.size(), std::memory_order_release);
  if (copy.verdict > static_cast<std::uint32_t>(Verdict::kUnavailable)) dead_ = true;
  return verdict;
}

bool KernelConnection::wait_for_turn(Turn& turn, std::uint64_t ticket) noexcept {
  const auto mine = [&] { return turn.next.load(std::memory_order_acquire) == ticket; };
  return wait(mine, [] { sched_yield(); });
}

bool KernelConnection::wait_for_reply(const RingSlot& slot, std::uint32_t sequence) noexcept {
  std::atomic<std::uint32_t>& word = slot.reply->sequence;
  const auto answered = [&] { return word.load(std::memory_order_acquire) == sequence; };
  return wait(answered, [&] {
    slot.request->sleeping.store(1, std::memory_order_relaxed);
    // With the daemon's between its reply and its look at `sleeping`: one of us sees the other's.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint32_t before = word.load(std::memory_order_acquire);
    if (before == sequence) return;
    const timespec limit{0, std::chrono::nanoseconds(kLookEvery).count()};
    syscall(SYS_futex, &word, FUTEX_WAIT, before, &limit, nullptr, 0);
  });
}

// Spins, then sleeps again and again. False: the daemon has ended.
template <typename Ready, typename Sleep>
bool KernelConnection::wait(const Ready& ready, const Sleep& sleep) noexcept {
  Clock::time_point start{}, look{};
  // False: the daemon has ended.
  const auto go_on = [&](Clock::time_point now) {
    if (start == Clock::time_point{}) look = (start = now) + kLookEvery;
    if (now >= look) {
      // An answer that was given before the daemon ended counts.
      const bool ended = daemon_ended() || now - start > kPatience;
      if (ended && !ready()) dead_ = true;
      look = now + kLookEvery;
    }
    return !dead_.load(std::memory_order_relaxed);
  };
  leat::detail::Spin spin(spin_, longest_spin_);
  while (spin.again()) {
    if (ready()) {
      spin.found();
      return true;
    }
    if (spin.looked() && !go_on(spin.now())) return ready();
  }
  while (!ready()) {
    if (!go_on(Clock::now())) return ready();
    sleep();
  }
  return true;
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
