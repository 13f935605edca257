// The two ways to multiply shared matrices.
#pragma once

#include <vector>

#include "prg.h"
#include "secure_engine.h"

namespace training {

// Two parties and a dealer: Beaver's triples (CRYPTO 1991), of matrices as in SecureML. A factor is
// a matrix under a mask, which both parties know, and shares of the mask: each matrix is opened
// once, however many products it stands in. Samples are their own mask, so that nothing of them is
// opened: their owner deals, and makes triples of the samples themselves.
//
// A product is wanted for its truncation alone, which hides it under one more mask. So the third of
// a triple, the product of the masks, is not a separate random number, but part of that mask.
class BeaverEngine final : public SecureEngine {
 public:
  // As first or second party, or as dealer without an exchange.
  BeaverEngine(Role role, Material& material, Exchange* exchange)
      : SecureEngine(role, &material, exchange) {}

  std::vector<Factor> prepare(std::initializer_list<const Matrix*> matrices) override;
  Factor prepare_samples(const Matrix& samples) override;

 private:
  Matrix share_of(const Product& factors, Matrix& mask) override;
};

// Three parties: replicated shares (Araki et al., CCS 2016). Of x = x0 + x1 + x2 party i
// knows xi and the next one, which suffices to compute, without a message, one of three summands of
// a product. For everything else two parties hold additive shares, to which the third one deals
// material: it sees nothing that they open (as the third one of SecureNN, PoPETs 2019, does).
class ReplicatedEngine final : public SecureEngine {
 public:
  // The keys that process 2 has in common with each of the others; each uses its own, process 2
  // both.
  struct Keys {
    Key first{}, second{};
  };
  // Helper: `material` is null. Dealer: `exchange` is null.
  ReplicatedEngine(Role role, Material* material, Exchange* exchange, const Keys& keys);

  std::vector<Factor> prepare(std::initializer_list<const Matrix*> matrices) override;
  Factor prepare_samples(const Matrix& samples) override;

 private:
  Matrix share_of(const Product& factors, Matrix& mask) override;

  Prg first_shares_, second_shares_;  // of matrices: x0 and x2
  Prg zero_;                          // what parties 0 and 2 hide their summands by
};

}  // namespace training
