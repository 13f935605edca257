// What has keys and counters stays with the process that made it: in a child of fork() it says so,
// and gives no counter, nonce or number away a second time.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "attest/channel_session.h"
#include "leat/error.h"
#include "support/errors.h"
#include "support/scratch.h"
#include "trusted/a2m_support.h"
#include "trusted/kernel_support.h"
#include "trusted/nodes.h"

namespace leat::trusted {
namespace {

using leat::detail::is_closed_by_fork;

// EXPECTs that `body` returns true in a child.
void in_child(const std::function<pid_t()>& make_child, const std::function<bool()>& body) {
  const pid_t child = make_child();
  ASSERT_GE(child, 0);
  if (child == 0) std::_Exit(body() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
void in_child(const std::function<bool()>& body) { in_child(::fork, body); }

bool refuses_everything(LocalKernel& kernel, const Record& next) {
  Proof proof{};
  return kernel.attest({.session = kSession}, bytes_of("twice"), proof) == Verdict::kForked &&
         proof.header == Proof{}.header && kernel.verify(next, Kind::kSend) == Verdict::kForked &&
         kernel.verify_stateless(next, Kind::kSend) == Verdict::kForked &&
         kernel.provision({.id = 1, .peer = 5, .key = session_key(9)}) == Verdict::kForked &&
         kernel.enable() == Verdict::kForked && !kernel.counters(kSession, 0) &&
         !kernel.session(kSession);
}

TEST(AttestorFork, a_kernel_attests_and_accepts_nothing_in_a_child) {
  for (const Algorithm algorithm : {Algorithm::kHmacSha256, Algorithm::kAes256Gmac}) {
    Pair pair(algorithm);
    const Record next = attested(pair.a, "one");
    in_child([&] { return refuses_everything(pair.b, next) && refuses_everything(pair.a, next); });
    // Where pthread_atfork() does not reach.
    in_child(::_Fork, [&] { return refuses_everything(pair.b, next); });
    EXPECT_EQ(pair.b.verify(next, Kind::kSend), Verdict::kOk);
    EXPECT_EQ(read_header(attested(pair.a, "two"))->counter, 1U);
  }
}

TEST(AttestorFork, a_kernel_that_is_not_enabled_yet_takes_no_keys_in_a_child) {
  LocalKernel kernel(1, kEpoch);
  in_child([&] {
    return kernel.provision({.id = 1, .peer = 2, .key = session_key(1)}) == Verdict::kForked &&
           kernel.enable() == Verdict::kForked;
  });
  EXPECT_EQ(kernel.provision({.id = 1, .peer = 2, .key = session_key(1)}), Verdict::kOk);
}

TEST(AttestorFork, a_child_begins_no_session_with_its_parents_random_number) {
  const leat::detail::ScratchFolder scratch;
  const std::string path = scratch.path() + "/key";
  std::ofstream(path) << std::string(64, 'a');
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const auto home = detail::make_local_home(path, Algorithm::kHmacSha256);
  const detail::Nonce theirs = detail::fresh_nonce();
  in_child([&] { return is_closed_by_fork([&] { (void)home->begin(theirs, true); }); });
  EXPECT_TRUE(home->begin(theirs, true).kernel);
}

// Nor does it touch the file.
TEST(AttestorFork, a_log_takes_no_entries_in_a_child) {
  leat::detail::ScratchFolder scratch;
  WriterKernel kernel;
  std::optional<AttestedMemory> memory(std::in_place, kernel, options_of(scratch.path() + "/a2m"));
  memory->append(kFirstLog, bytes_of("one"));
  in_child([&] {
    const bool refused = is_closed_by_fork([&] { memory->append(kFirstLog, bytes_of("two")); }) &&
                         is_closed_by_fork([&] { memory->truncate(kFirstLog, 1, nonce_of(1)); }) &&
                         is_closed_by_fork([&] { memory->end(kFirstLog, nonce_of(2)); }) &&
                         is_closed_by_fork([&] { memory->sync(); });
    memory.reset();
    return refused;
  });
  EXPECT_EQ(memory->append(kFirstLog, bytes_of("two")), 1U);
  Record record;
  EXPECT_EQ(memory->lookup(kFirstLog, 1, record), LookupStatus::kAssigned);
}

// Both would give one number to two requests.
TEST(AttestorFork, a_client_asks_nothing_in_a_child) {
  Nodes nodes(3);
  for (const PartyId id : nodes.ids())
    nodes.start(id, [&](PartyId, AttestationKernel& kernel, const SigningKey& key, FaultHook hook) {
      return std::make_unique<BftReplica>(kernel, nodes.directory(), key, make_counter,
                                          bft_options(3), std::move(hook));
    });
  Client client = nodes.connect(2);
  client.call(additions(1));
  in_child([&] {
    return is_closed_by_fork([&] { client.submit(additions(1)); }) &&
           is_closed_by_fork([&] { (void)client.receive(); }) &&
           is_closed_by_fork([&] { client.call(additions(1)); });
  });
  EXPECT_EQ(CounterMachine::value_of(client.call(additions(1)).back()), 2U);
}

}  // namespace
}  // namespace leat::trusted
