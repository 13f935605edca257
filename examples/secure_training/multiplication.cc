#include "multiplication.h"

#include <algorithm>
#include <span>
#include <utility>

namespace training {
namespace {

// Of the keys; material.cc has stream 0.
constexpr std::uint64_t kShareStream = 1, kZeroStream = 2;

}  // namespace

std::vector<Factor> BeaverEngine::prepare(std::initializer_list<const Matrix*> matrices) {
  std::vector<Factor> factors;
  for (const Matrix* matrix : matrices) {
    Words mask = material().uniform(matrix->size());
    if (holds_share()) send_masked(matrix->words, mask);
    factors.push_back(
        {{matrix->rows, matrix->columns, {}}, {matrix->rows, matrix->columns, std::move(mask)}});
  }
  if (!holds_share()) return factors;
  auto factor = factors.begin();
  for (const Matrix* matrix : matrices) {
    factor->first.words = open_masked(matrix->words, factor->second.words);
    ++factor;
  }
  return factors;
}

Factor BeaverEngine::prepare_samples(const Matrix& samples) {
  return {{samples.rows, samples.columns, {}}, samples};
}

// (E + A)(F + B) = E (F + B) + A F + A B, where E is 0 for samples.
Matrix BeaverEngine::share_of(const Product& factors, Matrix& mask) {
  const auto& [left, right, bits, turn] = factors;
  if (!holds_share()) {
    add_product(mask, left.second, right.second, turn);
    return {mask.rows, mask.columns, {}};
  }
  Matrix result = product(left.second, right.first, turn);
  if (!left.first.has_words()) return result;
  Matrix sum = right.second;
  if (is_first()) add(sum, right.first);
  add_product(result, left.first, sum, turn);
  return result;
}

ReplicatedEngine::ReplicatedEngine(Role role, Material* material, Exchange* exchange,
                                   const Keys& keys)
    : SecureEngine(role, material, exchange),
      first_shares_(keys.first, kShareStream),
      second_shares_(keys.second, kShareStream),
      zero_(keys.first, kZeroStream) {}

// x0 is known to parties 0 and 2 by their key, x2 to 1 and 2 by theirs, and x1 is the rest, which 0
// and 1 put together from what they have.
std::vector<Factor> ReplicatedEngine::prepare(std::initializer_list<const Matrix*> matrices) {
  std::vector<Factor> factors;
  for (const Matrix* matrix : matrices) {
    const std::size_t rows = matrix->rows, columns = matrix->columns;
    const auto draw = [&](Prg& prg) { return Matrix{rows, columns, prg.draw(rows * columns)}; };
    const Matrix none{rows, columns, {}};
    switch (role()) {
      case Role::kFirst:
        factors.push_back({draw(first_shares_), none});
        break;
      case Role::kSecond:
        factors.push_back({none, draw(second_shares_)});
        break;
      case Role::kHelper: {
        Matrix second = draw(second_shares_);
        factors.push_back({std::move(second), draw(first_shares_)});
        break;
      }
      case Role::kDealer:
        factors.push_back({none, none});
        break;
    }
    if (!holds_share()) continue;
    Factor& factor = factors.back();
    send_masked(matrix->words, is_first() ? factor.first.words : factor.second.words);
  }
  if (!holds_share()) return factors;
  auto factor = factors.begin();
  for (const Matrix* matrix : matrices) {
    if (is_first())
      factor->second.words = open_masked(matrix->words, factor->first.words);
    else
      factor->first.words = open_masked(matrix->words, factor->second.words);
    ++factor;
  }
  return factors;
}

Factor ReplicatedEngine::prepare_samples(const Matrix& samples) {
  return std::move(prepare({&samples}).front());
}

// Party i's summand is xi (yi + y(i+1)) + x(i+1) yi. Party 2 gives its own to party 1, hidden by a
// number that party 0 takes away again.
Matrix ReplicatedEngine::share_of(const Product& factors, Matrix&) {
  const auto& [left, right, bits, turn] = factors;
  const std::size_t rows = factors.rows(), columns = factors.columns();
  if (role() == Role::kDealer) return {rows, columns, {}};
  Matrix sum = right.first;
  add(sum, right.second);
  Matrix result = product(left.first, sum, turn);
  add_product(result, left.second, right.first, turn);
  switch (role()) {
    case Role::kFirst:
      subtract(result, {rows, columns, zero_.draw(result.size())});
      break;
    case Role::kSecond: {
      const std::span<const Word> in = exchange().receive(kOwner, result.size());
      for (std::size_t i = 0; i < in.size(); ++i) result.words[i] += in[i];
      break;
    }
    default: {
      add(result, {rows, columns, zero_.draw(result.size())});
      const std::span<Word> out = exchange().reserve(kSecondParty, result.size());
      std::ranges::copy(result.words, out.begin());
      exchange().commit(kSecondParty);
      result.words.clear();
    }
  }
  return result;
}

}  // namespace training
