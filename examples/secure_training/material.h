// Correlated random numbers for two parties, from a dealer that takes no part in the computation.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "prg.h"
#include "ring.h"

namespace training {

enum class Sharing { kAdditive, kXor };

// All three run the same protocol text and so draw the same sequence. What a party draws is its
// share, what the dealer draws is the value itself.
//
// Uniform values are made of both parties' keys and cost no message. Of a value that is determined
// by others the first party's share comes from its key too, and the second party gets the
// correction that makes the shares fit, which is all that travels. A party sees its key, or
// corrections, which the first one's key masks: uniform either way.
class Material {
 public:
  static Material first_party(const Key& key) { return Material(key, std::nullopt); }
  static Material second_party(const Key& key) { return Material(std::nullopt, key); }
  static Material dealer(const Key& first, const Key& second) { return Material(first, second); }

  bool is_dealer() const noexcept { return first_ && second_; }

  Words uniform(std::size_t count, Sharing sharing = Sharing::kAdditive);
  // `values` fills in what the dealer computed; it is called at the dealer alone.
  Words determined(std::size_t count, const std::function<void(std::span<Word>)>& values,
                   Sharing sharing = Sharing::kAdditive);

  // The dealer's corrections since the last call, and the second party's for the draws to come.
  Words take_corrections();
  void supply(Words corrections);

 private:
  Material(const std::optional<Key>& first, const std::optional<Key>& second);

  std::optional<Prg> first_, second_;
  Words corrections_;
  std::size_t used_ = 0;  // of a second party's corrections
};

}  // namespace training
