#include "trusted/parts/rounds.h"

#include <algorithm>
#include <string>
#include <utility>

#include "leat/error.h"

namespace leat::trusted::detail {

std::vector<Verdict> verify_all(AttestationKernel& kernel, Question::Asks asks,
                                const std::vector<View>& records) {
  std::vector<Question> questions(records.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    questions[i] = {.asks = asks, .statement = {.kind = Kind::kSend}, .bytes = records[i]};
  kernel.ask(questions);
  std::vector<Verdict> verdicts;
  verdicts.reserve(questions.size());
  for (const Question& question : questions) {
    if (is_unjudged(question.verdict))
      throw Error(ErrorCode::kUnavailable, "the attestation kernel does not verify: " +
                                               std::string(to_string(question.verdict)));
    verdicts.push_back(question.verdict);
  }
  return verdicts;
}

bool is_authentic(AttestationKernel& kernel, View record) {
  return verify_all(kernel, Question::Asks::kVerifyStateless, {record}).front() == Verdict::kOk;
}

void Intake::add(View record, std::uint64_t expected) {
  const auto header = read_header(record);
  if (!header) return;
  Stream& stream = streams_.try_emplace(header->session, Stream{expected, {}}).first->second;
  // As far as the kept ones reach; a node that forges one more makes this one ask in vain, no more.
  if (header->counter < stream.first || header->counter - stream.first > stream.places.size())
    return;
  const auto place = static_cast<std::size_t>(header->counter - stream.first);
  if (place == stream.places.size()) stream.places.emplace_back();
  stream.places[place].emplace(record.begin(), record.end());  // once, by whichever ways it came
}

std::uint64_t Intake::end(std::uint32_t session, std::uint64_t expected) const {
  const auto stream = streams_.find(session);
  return stream == streams_.end() ? expected : stream->second.first + stream->second.places.size();
}

std::vector<Bytes> Intake::verify(AttestationKernel& kernel) {
  std::vector<Bytes> records;
  for (auto& [session, stream] : std::exchange(streams_, {}))
    for (auto& arrived : stream.places)
      while (!arrived.empty())
        records.push_back(std::move(arrived.extract(arrived.begin()).value()));
  if (records.empty()) return records;
  const auto verdicts = verify_all(kernel, Question::Asks::kVerify,
                                   std::vector<View>(records.begin(), records.end()));
  std::size_t good = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (verdicts[i] != Verdict::kOk) continue;
    if (good != i) records[good] = std::move(records[i]);
    ++good;
  }
  records.resize(good);
  return records;
}

void Outgoing::attest(Outbox& outbox) {
  if (waiting_.empty()) return;
  const std::vector<Waiting> all = std::exchange(waiting_, {});
  std::vector<Question> questions(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    questions[i] = {.asks = Question::Asks::kAttest,
                    .statement = {.session = session_, .kind = Kind::kSend},
                    .bytes = all[i].payload};
  kernel_.ask(questions);
  for (const Question& question : questions)
    if (question.verdict != Verdict::kOk)
      throw Error(ErrorCode::kUnavailable, "the attestation kernel does not attest: " +
                                               std::string(to_string(question.verdict)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    Bytes record(all[i].payload.size() + kRecordOverheadBytes);
    write_record(questions[i].proof, all[i].payload, record);
    all[i].then(record, outbox);
  }
}

}  // namespace leat::trusted::detail
