#include "scml/digest.h"

#include <openssl/evp.h>

#include <string>
#include <string_view>
#include <vector>

#include "leat/error.h"

namespace leat::scml::detail {
namespace {

class Serialiser {
 public:
  void number(std::uint64_t value) {
    for (unsigned shift = 0; shift < 64; shift += 8)
      bytes_ += static_cast<char>(value >> shift & 0xff);
  }
  template <typename Enum>
  void enumerator(Enum value) {
    number(static_cast<std::uint64_t>(value));
  }
  void text(std::string_view value) {
    number(value.size());
    bytes_ += value;
  }
  template <typename Number>
  void numbers(const std::vector<Number>& values) {
    number(values.size());
    for (const Number value : values) number(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void put(Serialiser& out, const MessageArray& array) {
  out.text(array.content);
  out.number(array.message_bytes);
  out.numbers(array.round_messages);
  out.number(array.flows.size());
  for (const Flow& flow : array.flows) {
    out.number(flow.sender);
    out.number(flow.receiver);
  }
}

}  // namespace

std::array<std::uint8_t, 32> digest_of(const Plan& plan) {
  Serialiser out;
  out.text("leat plan 3");
  out.text(plan.model);
  out.number(plan.task_options.parties);
  out.number(plan.task_options.train ? 1 : 0);
  out.enumerator(plan.task_options.form);
  out.enumerator(plan.task_options.triples);
  out.number(plan.task_options.batch);
  out.enumerator(plan.task_options.profile);
  out.number(plan.options.memory_bytes);
  out.number(plan.options.offline_bytes);
  out.number(plan.options.by_round ? 1 : 0);
  out.number(plan.steps.size());
  for (const Step& step : plan.steps) {
    out.text(step.name);
    out.number(step.layer);
    out.enumerator(step.pass);
    out.enumerator(step.protocol);
    out.number(step.repeats);
    out.numbers(step.arrays);
    out.numbers(step.opens);
    out.numbers(step.frees);
  }
  out.number(plan.placements.size());
  for (const Placement& placement : plan.placements) {
    put(out, placement.messages);
    out.number(placement.context);
    out.number(placement.base_bytes);
    out.number(placement.first_step);
    out.number(placement.last_step);
  }
  out.number(plan.offline_bytes);
  out.number(plan.peak_bytes);
  out.number(plan.peak_contexts);

  std::array<std::uint8_t, 32> digest{};
  if (EVP_Digest(out.bytes().data(), out.bytes().size(), digest.data(), nullptr, EVP_sha256(),
                 nullptr) != 1)
    throw Error(ErrorCode::kSystem, "OpenSSL cannot compute SHA-256");
  return digest;
}

}  // namespace leat::scml::detail
