// Several questions to a kernel that is asked by a call.
#include "leat/attest/attestation.h"

namespace leat::trusted {

void AttestationKernel::ask(std::span<Question> questions) noexcept {
  for (Question& question : questions) {
    const Kind kind = question.statement.kind;
    switch (question.asks) {
      case Question::Asks::kAttest:
        question.verdict = attest(question.statement, question.bytes, question.proof);
        break;
      case Question::Asks::kVerify:
        question.verdict = verify(question.bytes, kind);
        break;
      case Question::Asks::kVerifyStateless:
        question.verdict = verify_stateless(question.bytes, kind);
        break;
    }
  }
}

}  // namespace leat::trusted
