// Training on additive shares: what two parties and a dealer do for numbers one by one. The
// multiplication of matrices is its subclasses' matter.
//
// Security: against one semi-honest process, if the dealer does not work together with a party.
// Every word that travels is masked by a uniform value that its receiver does not know and that
// masks nothing else; docs/secure_training.md has the argument for each.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine.h"
#include "exchange.h"
#include "material.h"

namespace training {

// Processes 0, 1 and 2 of a training.
enum class Role {
  kFirst,   // holds a share
  kSecond,  // holds the other one
  kDealer,  // makes the material ahead: draws, but sends and receives nothing
  kHelper,  // with three parties, process 2 during training: the rest of the multiplications
};
inline constexpr unsigned kFirstParty = 0, kSecondParty = 1, kOwner = 2;

class SecureEngine : public Engine {
 public:
  void begin(const Stage& stage) final;
  void end() final;
  std::vector<Matrix> multiply(std::initializer_list<Product> products) final;
  Sign relu(Matrix& matrix) final;
  void select(Matrix& matrix, const Sign& sign) final;

 protected:
  // Both must live longer. The dealer exchanges nothing, the helper needs no material: null.
  SecureEngine(Role role, Material* material, Exchange* exchange);

  bool holds_share() const noexcept { return role_ == Role::kFirst || role_ == Role::kSecond; }
  // Of the two parties, the one that adds what both know.
  bool is_first() const noexcept { return role_ == Role::kFirst; }
  Role role() const noexcept { return role_; }
  Material& material() { return *material_; }
  Exchange& exchange() { return *exchange_; }
  unsigned other_party() const noexcept { return is_first() ? kSecondParty : kFirstParty; }

  // A share of the product. `mask` has the own share of what hides it when it is opened
  // for its truncation; what the parties' products lack, the dealer adds there.
  virtual Matrix share_of(const Product& factors, Matrix& mask) = 0;

  // Shows each other shares - masks; the sum is what both then know.
  void send_masked(const Words& shares, const Words& masks);
  Words open_masked(const Words& shares, const Words& masks);

 private:
  // What the sign of numbers under a mask is computed with; all of it bits, in planes.
  struct Comparison {
    struct Level {
      Words masks;     // of what is opened
      Words products;  // of these masks
    };
    Words mask;   // its 32 bits
    Words pairs;  // the products of its bits 0 and 1, 2 and 3, ... 28 and 29
    std::vector<Level> levels;
  };

  Comparison draw_comparison(const Words& mask);
  // Shares, by xor, of the top bits of masked + mask.
  Words top_bits(const Words& masked, const Comparison& material);
  Words open_bits(const Words& shares, const Words& masks);

  const Role role_;
  Material* const material_;
  Exchange* const exchange_;
};

}  // namespace training
