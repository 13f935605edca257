// attest_kernel_key: a client believes the daemon that proves this key, and nobody in its place,
// not even a process of the client's own user.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "attest/kernel_connection.h"
#include "attest/kernel_ring.h"
#include "attestd/daemon.h"
#include "attestd/holdings.h"
#include "attestd/impostor.h"
#include "base/epoll.h"
#include "base/memfd.h"
#include "leat/attest/isolated_kernel.h"
#include "support/errors.h"

namespace leat::attestd {
namespace {

using leat::detail::error_of;
using leat::detail::MappedMemory;
using testing::AllOf;
using testing::HasSubstr;
using trusted::detail::Operation;
using trusted::detail::Reply;
using trusted::detail::Request;
using trusted::detail::Welcome;

constexpr std::chrono::microseconds kSpin{50};

Request request(Operation operation) { return {.operation = static_cast<std::uint8_t>(operation)}; }

std::string key_of(const Daemon& daemon) {
  const auto shown = leat::detail::run_program("src/attestd/leat-attestd",
                                               {"--key-file", daemon.key_file(), "--show-key"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  return shown.out.substr(0, shown.out.find('\n'));
}

// For both sides of a connection that mean this daemon, and find what serves at `path`.
Options pinned_to(const Daemon& daemon, const std::string& path) {
  Options options = daemon.options();
  options.attest_kernel = path;
  options.attest_kernel_key = key_of(daemon);
  return options;
}

void expect_exchange(const Options& options) {
  Connected both(options, options);
  both.connecting->send("attested");
  EXPECT_EQ(both.accepted->receive().text(), "attested");
}

std::string refusal_of(const Daemon& meant, const Options& options) {
  Listener listener("127.0.0.1:0", meant.options());
  return error_of(ErrorCode::kAuthentication,
                  [&] { Channel::connect(listener.address(), options); });
}

void await_end_of(const Fd& client) {
  pollfd end{client.get(), POLLRDHUP, 0};
  poll(&end, 1, -1);
}

TEST(AttestdPinned, the_daemon_with_that_key_is_used_and_again_when_it_was_restarted) {
  Daemon daemon;
  EXPECT_EQ(daemon.program().wait_for("device 0, key ").substr(0, 64), key_of(daemon));
  const Options options = pinned_to(daemon, daemon.path());
  expect_exchange(options);
  daemon.kill();
  daemon.start();
  expect_exchange(options);
  // The interface of C++; this daemon has no sessions of its own, and may say so.
  const auto kernel = [&](const std::string& key) {
    trusted::IsolatedKernel(daemon.path(), kSpin, "leat-attestd", key);
  };
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { kernel(key_of(daemon)); }),
              HasSubstr("has no sessions"));
  EXPECT_THAT(error_of(ErrorCode::kAuthentication, [&] { kernel(std::string(64, 'A')); }),
              HasSubstr("attest_kernel_key is " + std::string(64, 'a')));
  for (const char* bad : {"x", "abcd"})
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { kernel(bad); }),
                HasSubstr("64 hexadecimal digits"));
}

TEST(AttestdPinned, a_daemon_with_another_key_is_refused_and_both_keys_are_told) {
  Daemon meant;
  const leat::detail::ScratchFolder folder;
  Daemon other({}, "root", folder.write("key", std::string(64, 'b')));
  EXPECT_THAT(refusal_of(meant, pinned_to(meant, other.path())),
              AllOf(HasSubstr(other.path()), HasSubstr("it has the key " + key_of(other)),
                    HasSubstr("attest_kernel_key is " + key_of(meant))));
  expect_exchange(pinned_to(other, other.path()));
}

// The first request on this connection, as the daemon answers it.
Reply ask(const RawClient& client, Request asked, std::span<const std::byte> data) {
  asked.bytes = static_cast<std::uint32_t>(data.size());
  const auto slot = client.welcome->shape.slot(client.memory.data(), 0);
  slot.request->body = asked;
  std::ranges::copy(data, slot.data);
  slot.request->sequence.store(1, std::memory_order_release);
  const std::uint64_t one = 1;
  EXPECT_EQ(write(client.wake.get(), &one, sizeof one), 8);
  while (slot.reply->sequence.load(std::memory_order_acquire) != 1) std::this_thread::yield();
  return slot.reply->body;
}

// Gives the client a ring in which the first request gets that reply, until the client goes.
void answer_with(const Reply& reply, const Fd& client) {
  const Welcome welcome;
  const Fd file(leat::detail::new_memfd("impostor")), wake(leat::detail::new_event());
  leat::detail::check(ftruncate(file.get(), static_cast<off_t>(welcome.shape.bytes())), "truncate");
  leat::detail::check(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), "seal");
  const auto memory = MappedMemory::of_file(file.get(), welcome.shape.bytes(),
                                            MappedMemory::Protection::kReadWrite);
  const int descriptors[] = {file.get(), wake.get()};
  leat::detail::send_message(client.get(), trusted::detail::encode(welcome), descriptors);
  const auto slot = welcome.shape.slot(memory.data(), 0);
  while (slot.request->sequence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  slot.reply->body = reply;
  slot.reply->sequence.store(1, std::memory_order_release);
  await_end_of(client);
}

TEST(AttestdPinned, an_impostor_that_repeats_an_earlier_proof_is_refused) {
  Daemon daemon;
  const RawClient earlier(daemon.path());
  const std::array<std::byte, 32> number{};
  const Reply proof = ask(earlier, request(Operation::kProve), number);
  ASSERT_EQ(proof.verdict, 0U);
  const Impostor impostor([&](const Fd& client) { answer_with(proof, client); });
  EXPECT_THAT(refusal_of(daemon, pinned_to(daemon, impostor.path())),
              AllOf(HasSubstr(impostor.path()),
                    HasSubstr("does not prove that the key " + key_of(daemon) + " is its own")));
}

// As one that was started so often that it has the number of the daemon which gave that proof.
TEST(AttestdPinned, an_earlier_proof_is_refused_of_a_process_with_the_same_number_too) {
  Daemon daemon;
  const Impostor impostor([&](const Fd& client) {
    Holdings holdings;
    holdings.take_key_file(daemon.key_file());
    const std::array<std::byte, 32> earlier{};
    const auto proof = holdings.introduce(earlier).value();
    Reply reply;
    std::ranges::copy(proof.signature, std::ranges::copy(proof.key, reply.data.begin()).out);
    answer_with(reply, client);
  });
  EXPECT_THAT(refusal_of(daemon, pinned_to(daemon, impostor.path())),
              HasSubstr("does not prove that the key " + key_of(daemon) + " is its own"));
}

TEST(AttestdPinned, an_impostor_that_proves_nothing_is_refused) {
  Daemon daemon;
  const Impostor impostor([](const Fd& client) {
    answer_with({.verdict = static_cast<std::uint32_t>(trusted::Verdict::kFormat)}, client);
  });
  EXPECT_THAT(refusal_of(daemon, pinned_to(daemon, impostor.path())),
              HasSubstr("it does not prove its key"));
}

// The client would speak with the daemon itself, in memory in which the impostor can write too.
TEST(AttestdPinned, an_impostor_that_passes_on_what_the_daemon_says_is_refused) {
  Daemon daemon;
  const Impostor impostor([&](const Fd& client) {
    const Fd real = socket_at(daemon.path(), connect);
    leat::detail::wait_ready(real.get(), POLLIN, leat::detail::hang_deadline(), "no welcome");
    std::array<std::byte, trusted::detail::kWelcomeBytes> welcome{};
    std::vector<Fd> descriptors;
    leat::detail::receive_message(real.get(), welcome, trusted::detail::kWelcomeDescriptors,
                                  descriptors);
    const int passed[] = {descriptors.at(0).get(), descriptors.at(1).get()};
    leat::detail::send_message(client.get(), welcome, passed);
    await_end_of(client);
  });
  EXPECT_THAT(refusal_of(daemon, pinned_to(daemon, impostor.path())),
              HasSubstr("does not prove that the key " + key_of(daemon) + " is its own"));
  // Without a key it is believed.
  trusted::detail::KernelConnection believed({impostor.path()}, kSpin);
  const std::array<std::byte, 32> number{};
  Reply reply;
  EXPECT_EQ(believed.ask(request(Operation::kProve), number, reply), trusted::Verdict::kOk);
}

TEST(AttestdPinned, the_key_to_show_is_that_of_a_key_file) {
  const auto shown = leat::detail::run_program("src/attestd/leat-attestd",
                                               {"--controller", "--key-file", "x", "--show-key"});
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_THAT(shown.err, HasSubstr("--show-key"));
}

}  // namespace
}  // namespace leat::attestd
