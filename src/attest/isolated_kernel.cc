#include "leat/attest/isolated_kernel.h"

#include <algorithm>
#include <utility>

#include "attest/kernel_connection.h"
#include "attest/record.h"
#include "base/quote.h"
#include "base/setting_values.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted {

using detail::Operation;
using detail::Reply;

namespace {

constexpr std::uint8_t number_of(Operation operation) {
  return static_cast<std::uint8_t>(operation);
}

std::string checked_key(const std::string& key) {
  using Codec = leat::detail::PublicKeyCodec;
  auto checked = Codec::parse(key);
  if (!checked)
    throw Error(ErrorCode::kInvalidArgument,
                leat::detail::quoted(key) + " is not the public key of a leat-attestd",
                std::string("Allowed: ") + Codec::kAllowed + ".");
  return *checked;
}

// Whether the header says what was asked for: everything but counter, epoch and algorithm.
bool is_of(const RecordHeader& header, const Statement& statement, std::uint32_t device,
           std::uint64_t epoch) {
  return header.kind == statement.kind && header.stream == statement.stream &&
         header.session == statement.session && header.device == device && header.epoch == epoch &&
         header.slot == statement.slot && header.offset == statement.offset;
}

}  // namespace

IsolatedKernel::IsolatedKernel(const std::string& path, std::chrono::microseconds spin,
                               const std::string& user, const std::string& key)
    : connection_(std::make_unique<detail::KernelConnection>(
          detail::ExpectedDaemon{path, user, checked_key(key)}, spin)),
      kernel_(detail::kDeviceKernel),
      device_(connection_->welcome().device),
      epoch_(connection_->welcome().epoch) {
  if (device_ == 0)
    throw Error(ErrorCode::kUnavailable, "leat-attestd at " + path + " has no sessions",
                "Provision it: docs/remote_attestation.md.");
}

IsolatedKernel::IsolatedKernel(std::unique_ptr<detail::KernelConnection> connection,
                               std::uint32_t kernel, std::uint32_t device, std::uint64_t epoch)
    : connection_(std::move(connection)), kernel_(kernel), device_(device), epoch_(epoch) {}

IsolatedKernel::~IsolatedKernel() = default;

void IsolatedKernel::ask(std::span<Question> questions) noexcept {
  connection_->ask(kernel_, questions);
  check(questions);
}

void IsolatedKernel::check(std::span<Question> answered) const noexcept {
  for (Question& question : answered) {
    if (question.asks != Question::Asks::kAttest || question.verdict != Verdict::kOk) continue;
    RecordHeader header;
    if (detail::parse_header(question.proof.header, header) != Verdict::kOk ||
        header.payload_bytes != question.bytes.size() ||
        !is_of(header, question.statement, device_, epoch_))
      question.verdict = Verdict::kUnavailable;
  }
}

Verdict IsolatedKernel::attest(const Statement& statement, std::span<const std::byte> payload,
                               Proof& proof) noexcept {
  Question question{.asks = Question::Asks::kAttest, .statement = statement, .bytes = payload};
  ask({&question, 1});
  if (question.verdict == Verdict::kOk) proof = question.proof;
  return question.verdict;
}

Verdict IsolatedKernel::verify(std::span<const std::byte> record, Kind expected) noexcept {
  Question question{.statement = {.kind = expected}, .bytes = record};
  ask({&question, 1});
  return question.verdict;
}

Verdict IsolatedKernel::verify_stateless(std::span<const std::byte> record,
                                         Kind expected) noexcept {
  Question question{
      .asks = Question::Asks::kVerifyStateless, .statement = {.kind = expected}, .bytes = record};
  ask({&question, 1});
  return question.verdict;
}

Verdict IsolatedKernel::sign(std::span<const std::byte> record, Kind expected,
                             Signature& signature) noexcept {
  Reply reply;
  const Verdict verdict = connection_->ask({.operation = number_of(Operation::kSign),
                                            .kind = static_cast<std::uint8_t>(expected),
                                            .kernel = kernel_},
                                           record, reply);
  if (verdict == Verdict::kOk)
    std::ranges::copy(std::span(reply.data).first(signature.size()), signature.begin());
  return verdict;
}

bool is_signed(const PublicKey& reply_key, std::span<const std::byte> record,
               std::span<const std::byte> signature) {
  constexpr PartyId kDevice = 1;
  const Directory directory({{.id = kDevice, .key = reply_key, .address = {}}});
  return read_header(record) && directory.verify(kDevice, detail::to_be_signed(record), signature);
}

std::optional<Counters> IsolatedKernel::counters(std::uint32_t session,
                                                 std::uint8_t stream) noexcept {
  Reply reply;
  if (connection_->ask({.operation = number_of(Operation::kCounters),
                        .stream = stream,
                        .kernel = kernel_,
                        .session = session},
                       {}, reply) != Verdict::kOk)
    return std::nullopt;
  leat::detail::WireReader reader(reply.data);
  Counters counters;
  counters.next_sent = reader.number<std::uint64_t>();
  counters.next_received = reader.number<std::uint64_t>();
  return counters;
}

std::optional<Session> IsolatedKernel::session(std::uint32_t id) noexcept {
  Reply reply;
  if (connection_->ask(
          {.operation = number_of(Operation::kSession), .kernel = kernel_, .session = id}, {},
          reply) != Verdict::kOk)
    return std::nullopt;
  leat::detail::WireReader reader(reply.data);
  Session session;
  session.id = id;
  session.role = static_cast<Role>(reader.number<std::uint8_t>());
  session.algorithm = static_cast<Algorithm>(reader.number<std::uint8_t>());
  session.streams = reader.number<std::uint8_t>();
  (void)reader.number<std::uint8_t>();
  session.peer = reader.number<std::uint32_t>();
  if (session.role < Role::kPair || session.role > Role::kLog ||
      !detail::is_algorithm(session.algorithm) || session.streams < 1 || session.streams > kStreams)
    return std::nullopt;
  return session;
}

std::size_t IsolatedKernel::max_payload_bytes() const noexcept {
  return connection_->welcome().shape.max_payload_bytes;
}

}  // namespace leat::trusted
