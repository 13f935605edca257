// Attested append-only memory in two processes: a host that keeps a log, and a verifier that
// believes nothing of what the host says but what its attestation kernel attested. With --lie the
// host tries to cheat, and is found out.
#include <leat/leat.h>
#include <leat/trusted/a2m.h>
#include <leat/trusted/a2m_verifier.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "local_processes.h"
#include "system.h"

namespace {

using namespace leat::trusted;

constexpr std::uint32_t kManifest = 1, kLog = 2;
constexpr std::uint32_t kHostDevice = 1, kVerifierDevice = 2;

struct Arguments {
  Part part;
  std::uint64_t entries = 1000;
  std::string folder;
  std::string lie;
  std::string listen;
  std::string connect;
};

// In a folder of provisioned.sh each party has a leat-attestd of its own, and nobody else knows its
// keys. Without such a folder each process contains its kernel, and every reader of this file knows
// the keys.
std::unique_ptr<AttestationKernel> make_kernel(const Arguments& arguments, std::uint32_t device) {
  if (!arguments.part.folder.empty())
    return System::in(arguments.part.folder)
        .kernels_of(device)({arguments.part.epoch, {kHostDevice}});
  auto kernel = std::make_unique<LocalKernel>(device, 1);
  const bool host = device == kHostDevice;
  for (const std::uint32_t id : {kManifest, kLog}) {
    const std::vector<std::byte> key(kMinKeyBytes, std::byte(id));
    kernel->provision({.id = id,
                       .role = host ? Role::kGroupSender : Role::kGroupReceiver,
                       .peer = host ? 0 : kHostDevice,
                       .key = key});
  }
  kernel->enable();
  return kernel;
}

// What the verifier asks; the answer is a LookupStatus in one byte and a record behind it.
struct Question {
  enum What : std::uint32_t { kAppend, kLookup, kEnd, kTruncate } what;
  std::uint32_t log;
  std::uint64_t index;  // kAppend: none; kTruncate: the new head
  Nonce nonce;          // kAppend: what is appended
};

// --- the host: untrusted

// What it shows in place of the truth.
void lie(const std::string& how, std::uint64_t index, AttestedMemory& memory, LookupStatus& status,
         Record& record) {
  if (status != LookupStatus::kAssigned || index != 5) return;
  if (how == "forge") record[kHeaderBytes] ^= std::byte{1};
  if (how == "swap") memory.lookup(kLog, index + 1, record);
  if (how == "hide") status = LookupStatus::kUnassigned;
  if (how == "forget") status = LookupStatus::kForgotten;
}

void keep_log(leat::Listener& listener, const Arguments& arguments) {
  const auto kernel = make_kernel(arguments, kHostDevice);
  AttestedMemory memory(*kernel, {.folder = arguments.folder,
                                  .manifest = kManifest,
                                  .logs = {{.session = kLog, .digests = true}}});
  leat::Channel channel = listener.accept();
  Record answer;
  while (const leat::Message message = channel.receive()) {
    Question question;
    if (message.size() != sizeof question) break;
    std::memcpy(&question, message.data(), sizeof question);
    Record record;
    LookupStatus status = LookupStatus::kAssigned;
    switch (question.what) {
      case Question::kAppend:
        memory.append(question.log, question.nonce, &record);
        break;
      case Question::kLookup:
        status = memory.lookup(question.log, question.index, record);
        lie(arguments.lie, question.index, memory, status, record);
        break;
      case Question::kEnd:
        record = memory.end(question.log, question.nonce);
        break;
      case Question::kTruncate:
        record = memory.truncate(question.log, question.index, question.nonce);
        break;
    }
    answer.assign(1, static_cast<std::byte>(status));
    answer.insert(answer.end(), record.begin(), record.end());
    channel.send(answer);
  }
}

// --- the verifier

class Client {
 public:
  Client(const std::string& address, const Arguments& arguments)
      : channel_(leat::Channel::connect("leat://" + address)),
        kernel_(make_kernel(arguments, kVerifierDevice)),
        verifier_(*kernel_, kManifest) {}

  // 0 if the host is honest.
  int run(std::uint64_t entries) {
    for (std::uint64_t i = 0; i < entries; ++i) {
      Nonce content{};
      std::memcpy(content.data(), &i, sizeof i);
      ask({Question::kAppend, kLog, 0, content});
    }
    if (const Finding found = verify_all(); found != Finding::kOk) return expose(found);
    std::printf("verified: %llu entries, each as it was attested, none missing\n",
                static_cast<unsigned long long>(verifier_.bounds(kLog)->tail));

    const std::uint64_t head = entries / 2;
    const Nonce nonce = verifier_.challenge();
    ask({Question::kTruncate, kLog, head, nonce});
    Finding found = verifier_.verify_truncation(kLog, head, record_);
    if (found == Finding::kOk) found = verify_all();
    if (found == Finding::kOk)
      found = verifier_.verify_lookup(kLog, 0, ask({Question::kLookup, kLog, 0, {}}), record_);
    if (found != Finding::kOk) return expose(found);
    std::printf("truncated: entries from %llu on, those before are forgotten\n",
                static_cast<unsigned long long>(head));
    return 0;
  }

 private:
  LookupStatus ask(const Question& question) {
    channel_.send(std::as_bytes(std::span(&question, 1)));
    const leat::Message message = channel_.receive();
    if (!message || message.size() < 1)
      throw leat::Error(leat::ErrorCode::kPeerDied, "the host does not answer");
    record_.assign(message.bytes().begin() + 1, message.bytes().end());
    return static_cast<LookupStatus>(message.bytes()[0]);
  }

  Finding verify_all() {
    for (;;) {
      Finding found = learn_bounds();
      if (found != Finding::kOk) return found;
      found = verifier_.verify_all(kLog, lookup_, &bad_);
      if (found != Finding::kForgottenSince) return found;
      // Another client may have truncated the log meanwhile. Bounds that are learnt now tell.
      found = learn_bounds();
      if (found != Finding::kOk) return found;
      if (verifier_.bounds(kLog)->head <= bad_) return Finding::kFalseStatus;
    }
  }

  Finding learn_bounds() {
    const Nonce nonce = verifier_.challenge();
    ask({Question::kEnd, kLog, 0, nonce});
    const Record end = record_;
    ask({Question::kEnd, kManifest, 0, nonce});
    const Record manifest_end = record_;
    return verifier_.learn_bounds(kLog, end, manifest_end, lookup_);
  }

  int expose(Finding found) const {
    std::printf("exposed at entry %llu: %s\n", static_cast<unsigned long long>(bad_),
                std::string(to_string(found)).c_str());
    return 1;
  }

  leat::Channel channel_;
  const std::unique_ptr<AttestationKernel> kernel_;
  A2mVerifier verifier_;
  const A2mVerifier::Lookup lookup_ = [this](std::uint32_t log, std::uint64_t index,
                                             Record& record) {
    const LookupStatus status = ask({Question::kLookup, log, index, {}});
    record = record_;
    return status;
  };
  Record record_;
  std::uint64_t bad_ = 0;
};

// The host as a process of its own, and the verifier in this one.
int run_both(const Arguments& arguments) {
  AddressPipe address;
  LocalProcesses host;
  host.start([&] {
    leat::Listener listener("127.0.0.1:0");
    address.tell(listener.address(), 1);
    keep_log(listener, arguments);
    return 0;
  });
  const int result = Client(address.wait(), arguments).run(arguments.entries);
  host.wait();
  return result;
}

int run(Arguments arguments) {
  if (!arguments.part.folder.empty()) {
    const System system = System::in(arguments.part.folder);
    const Party* host = system.directory().find(system.all(PartyRole::kNode).front());
    if (host->id != kHostDevice)
      throw leat::Error(leat::ErrorCode::kInvalidArgument, "the host is party 1, and no other");
    const bool is_host = arguments.part.party == kHostDevice;
    if (!is_host && system.role_of(arguments.part.party) != PartyRole::kWitness)
      throw leat::Error(leat::ErrorCode::kInvalidArgument,
                        "party " + std::to_string(arguments.part.party) +
                            " is neither the host nor the verifier, which is the witness");
    (is_host ? arguments.listen : arguments.connect) = host->address;
  }
  if (!arguments.connect.empty())
    return Client(arguments.connect, arguments).run(arguments.entries);
  if (arguments.listen.empty()) return run_both(arguments);
  leat::Listener listener(arguments.listen);
  std::printf("listening at %s\n", listener.address().c_str());
  std::fflush(stdout);
  keep_log(listener, arguments);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Attested append-only memory: a host keeps a log, a verifier in another process appends to "
      "it,\nreads it back and checks every word. Without --listen or --connect it runs both.",
      "a2m");
  app.add_option("--entries", arguments.entries, "Entries to append")
      ->check(CLI::Range(10, 100'000'000))
      ->capture_default_str();
  app.add_option("--folder", arguments.folder,
                 "The host keeps the log in new files there; default: in memory");
  app.add_option("--lie", arguments.lie, "What the host does to entry 5: forge, swap, hide, forget")
      ->check(CLI::IsMember({"forge", "swap", "hide", "forget"}));
  auto* listen = app.add_option("--listen", arguments.listen, "Be the host, at HOST:PORT");
  app.add_option("--connect", arguments.connect, "Be the verifier of the host at HOST:PORT")
      ->excludes(listen);
  app.footer(
      "Exit code: 0 if every entry was as it was attested, 1 if not, 2 for wrong arguments.");
  add_part(app, arguments.part);
  return run_program(app, argc, argv, [&] { return run(arguments); });
}
