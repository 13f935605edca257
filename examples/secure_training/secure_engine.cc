#include "secure_engine.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "bit_planes.h"

namespace training {

SecureEngine::SecureEngine(Role role, Material* material, Exchange* exchange)
    : role_(role), material_(material), exchange_(exchange) {}

void SecureEngine::begin(const Stage& stage) {
  if (role_ != Role::kDealer) exchange_->begin(stage);
}

void SecureEngine::end() {
  if (role_ != Role::kDealer) exchange_->end();
}

void SecureEngine::send_masked(const Words& shares, const Words& masks) {
  differences(exchange_->reserve(other_party(), shares.size()), shares, masks);
  exchange_->commit(other_party());
}

Words SecureEngine::open_masked(const Words& shares, const Words& masks) {
  const std::span<const Word> in = exchange_->receive(other_party(), shares.size());
  Words opened(shares.size());
  sums_of_differences(opened, shares, masks, in);
  return opened;
}

Words SecureEngine::open_bits(const Words& shares, const Words& masks) {
  xors(exchange_->reserve(other_party(), shares.size()), shares, masks);
  exchange_->commit(other_party());
  const std::span<const Word> in = exchange_->receive(other_party(), shares.size());
  Words opened(shares.size());
  xors(opened, shares, masks, in);
  return opened;
}

// Truncation as in Escudero et al., "Improved primitives for MPC over mixed arithmetic-binary
// circuits" (CRYPTO 2020), in a ring: x + 2^30, whose top bit is 0, is masked by all of r and
// opened as c. Without their top bits, x + 2^30 = c - r + 2^31 v, where v, the carry into the top
// bit, is the exclusive-or of the two top bits. Cutting off the low bits of c and r rounds up with
// the probability of what is cut off.
std::vector<Matrix> SecureEngine::multiply(std::initializer_list<Product> products) {
  struct Masks {
    Matrix minus_r;
    Words high, top;
  };
  std::vector<Matrix> results;
  std::vector<Masks> all;
  for (const Product& product : products) {
    const std::size_t rows = product.rows(), columns = product.columns(), size = rows * columns;
    Matrix minus_r{rows, columns, {}};
    if (role_ != Role::kHelper) minus_r.words = material_->uniform(size);
    results.push_back(share_of(product, minus_r));
    if (role_ == Role::kHelper) continue;
    Words high = material_->determined(size, [&](std::span<Word> values) {
      for (std::size_t i = 0; i < size; ++i)
        values[i] = (-minus_r.words[i] & ~kTopBit) >> product.bits;
    });
    Words top = material_->determined(size, [&](std::span<Word> values) {
      for (std::size_t i = 0; i < size; ++i) values[i] = -minus_r.words[i] >> 31;
    });
    all.push_back({std::move(minus_r), std::move(high), std::move(top)});
  }
  if (!holds_share()) return results;

  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_first())
      for (Word& word : results[i].words) word += kTruncationLimit;
    send_masked(results[i].words, all[i].minus_r.words);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [minus_r, high, top] = all[i];
    Words& words = results[i].words;
    const auto in = exchange_->receive(other_party(), words.size());
    finish_truncation(words, {minus_r.words, high, top, in}, products.begin()[i].bits, is_first());
  }
  return results;
}

namespace {

std::function<void(std::span<Word>)> products(const Words& left, const Words& right) {
  return [&](std::span<Word> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = left[i] * right[i];
  };
}

}  // namespace

// The number is opened under a mask and multiplied with the bit that the sign was opened under.
void SecureEngine::select(Matrix& matrix, const Sign& sign) {
  if (role_ == Role::kHelper) return;
  const Words mask = material_->uniform(matrix.size());
  const Words mask_times_bit = material_->determined(matrix.size(), products(mask, sign.mask));
  if (!holds_share()) return;
  send_masked(matrix.words, mask);
  const Words masked = open_masked(matrix.words, mask);
  finish_select(matrix.words, masked, sign.opened, sign.mask, mask_times_bit);
}

// The number is opened under a mask, and its sign computed from the mask's bits, of which the
// parties have shares too (an edaBit: Escudero et al., without the authentication). The sign is
// opened under a random bit, which turns its sharing from xor to additive (a daBit: Rotaru and
// Wood, INDOCRYPT 2019), and multiplied with the number, whose mask serves once more as one of
// Beaver's.
Sign SecureEngine::relu(Matrix& matrix) {
  if (role_ == Role::kHelper) return {};
  const std::size_t count = matrix.size();
  const Words mask = material_->uniform(count);
  const Comparison comparison = draw_comparison(mask);
  const Words random_bits = material_->uniform(plane_words(count), Sharing::kXor);
  Sign sign;
  sign.mask = material_->determined(count, [&](std::span<Word> values) {
    const Words bits = unpacked(random_bits, count);
    std::ranges::copy(bits, values.begin());
  });
  const Words mask_times_bit = material_->determined(count, products(mask, sign.mask));
  if (!holds_share()) return sign;

  send_masked(matrix.words, mask);
  const Words masked = open_masked(matrix.words, mask);
  const Words negative = top_bits(masked, comparison);
  sign.opened = unpacked(open_bits(negative, random_bits), count);
  finish_select(matrix.words, masked, sign.opened, sign.mask, mask_times_bit);
  return sign;
}

}  // namespace training
