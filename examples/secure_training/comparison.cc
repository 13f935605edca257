// The sign of y + m, where both parties know y and have shares of the bits of m: the top bits and
// the carry into them.
//
// The carry comes from a tree, as in parallel prefix adders (Brent and Kung, IEEE Trans. Computers
// 1982): a group of bits generates a carry or propagates one, and two neighbouring groups are one
// with generate = g_high ^ (p_high & g_low) and propagate = p_high & p_low. At the leaves g = y & m
// and p = y ^ m cost nothing, nor do pairs of them, whose products need only those of the bits of
// m, which the dealer knows ahead. That leaves 16 groups and four rounds. Every "and" of the tree
// takes a triple of bits (Beaver, CRYPTO 1991), and both of a pair the same mask of p_high.
#include <cstddef>
#include <span>
#include <utility>

#include "bit_planes.h"
#include "secure_engine.h"

namespace training {
namespace {

constexpr std::size_t kPairs = 15;   // of bits 0 to 29; bit 30 stands alone
constexpr std::size_t kGroups = 16;  // the lowest one's propagate is of no use

// What one level opens, for `pairs` pairs of groups: each pair's p_high, each one's g_low, and,
// except for the lowest, p_low.
std::size_t opened_planes(std::size_t pairs) { return 3 * pairs - 1; }
std::size_t product_planes(std::size_t pairs) { return 2 * pairs - 1; }

// The i-th plane.
template <typename Container>
auto plane(Container& planes, std::size_t i, std::size_t words) {
  return std::span(planes).subspan(i * words, words);
}

struct Groups {
  Words generate, propagate;
};

// Bits 2i and 2i + 1 of y and m, for i below 15, and bit 30.
Groups leaves(const Words& y, const Words& m, const Words& pairs, std::size_t words,
              bool adds_public) {
  const Word ours = adds_public ? ~Word{0} : 0;
  Groups groups{Words(kGroups * words), Words(kGroups * words)};
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    const auto y_low = plane(y, 2 * pair, words), y_high = plane(y, 2 * pair + 1, words);
    const auto m_low = plane(m, 2 * pair, words), m_high = plane(m, 2 * pair + 1, words);
    const auto product = plane(pairs, pair, words);
    const auto generate = plane(groups.generate, pair, words);
    const auto propagate = plane(groups.propagate, pair, words);
    for (std::size_t i = 0; i < words; ++i) {
      const Word p_high_m_low = (y_high[i] & m_low[i]) ^ product[i];
      generate[i] = (y_high[i] & m_high[i]) ^ (y_low[i] & p_high_m_low);
      propagate[i] = (ours & y_high[i] & y_low[i]) ^ (y_low[i] & m_high[i]) ^ p_high_m_low;
    }
  }
  const auto y_last = plane(y, 2 * kPairs, words), m_last = plane(m, 2 * kPairs, words);
  const auto generate = plane(groups.generate, kPairs, words);
  const auto propagate = plane(groups.propagate, kPairs, words);
  for (std::size_t i = 0; i < words; ++i) {
    generate[i] = y_last[i] & m_last[i];
    propagate[i] = (ours & y_last[i]) ^ m_last[i];
  }
  return groups;
}

// In the order of opened_planes.
Words factors(const Groups& groups, std::size_t pairs, std::size_t words) {
  Words result;
  result.reserve(opened_planes(pairs) * words);
  const auto append = [&](const Words& planes, std::size_t i) {
    const auto some = plane(planes, i, words);
    result.insert(result.end(), some.begin(), some.end());
  };
  for (std::size_t i = 0; i < pairs; ++i) append(groups.propagate, 2 * i + 1);
  for (std::size_t i = 0; i < pairs; ++i) append(groups.generate, 2 * i);
  for (std::size_t i = 1; i < pairs; ++i) append(groups.propagate, 2 * i);
  return result;
}

// The places of a product's factors among the opened planes.
std::pair<std::size_t, std::size_t> factors_of(std::size_t product, std::size_t pairs) {
  const std::size_t high = product < pairs ? product : product - pairs + 1;
  return {high, pairs + product};
}

}  // namespace

SecureEngine::Comparison SecureEngine::draw_comparison(const Words& mask) {
  const std::size_t words = plane_words(mask.size());
  Comparison comparison;
  comparison.mask = material().determined(
      kWordBits * words, [&](std::span<Word> values) { to_planes(mask, values); }, Sharing::kXor);
  comparison.pairs = material().determined(
      kPairs * words,
      [&](std::span<Word> values) {
        for (std::size_t pair = 0; pair < kPairs; ++pair)
          for (std::size_t i = 0; i < words; ++i)
            plane(values, pair, words)[i] = plane(comparison.mask, 2 * pair, words)[i] &
                                            plane(comparison.mask, 2 * pair + 1, words)[i];
      },
      Sharing::kXor);
  for (std::size_t pairs = kGroups / 2; pairs != 0; pairs /= 2) {
    Words masks = material().uniform(opened_planes(pairs) * words, Sharing::kXor);
    Words products = material().determined(
        product_planes(pairs) * words,
        [&](std::span<Word> values) {
          for (std::size_t product = 0; product < product_planes(pairs); ++product) {
            const auto [left, right] = factors_of(product, pairs);
            for (std::size_t i = 0; i < words; ++i)
              plane(values, product, words)[i] =
                  plane(masks, left, words)[i] & plane(masks, right, words)[i];
          }
        },
        Sharing::kXor);
    comparison.levels.push_back({std::move(masks), std::move(products)});
  }
  return comparison;
}

Words SecureEngine::top_bits(const Words& masked, const Comparison& material) {
  const std::size_t words = plane_words(masked.size());
  const Word ours = is_first() ? ~Word{0} : 0;
  Words y(kWordBits * words);
  to_planes(masked, y);
  Groups groups = leaves(y, material.mask, material.pairs, words, is_first());
  std::size_t pairs = kGroups / 2;
  for (const Comparison::Level& level : material.levels) {
    const Words opened = open_bits(factors(groups, pairs, words), level.masks);
    const auto multiplied = [&](std::size_t product, std::size_t i) {
      const auto [left, right] = factors_of(product, pairs);
      const Word d = opened[left * words + i], e = opened[right * words + i];
      return level.products[product * words + i] ^ (d & level.masks[right * words + i]) ^
             (e & level.masks[left * words + i]) ^ (ours & d & e);
    };
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const auto generate = plane(groups.generate, pair, words);
      const auto generate_high = plane(groups.generate, 2 * pair + 1, words);
      for (std::size_t i = 0; i < words; ++i) generate[i] = generate_high[i] ^ multiplied(pair, i);
      if (pair == 0) continue;
      const auto propagate = plane(groups.propagate, pair, words);
      for (std::size_t i = 0; i < words; ++i) propagate[i] = multiplied(pairs + pair - 1, i);
    }
    pairs /= 2;
  }
  Words top(words);
  const std::size_t last = (kWordBits - 1) * words;
  for (std::size_t i = 0; i < words; ++i)
    top[i] = (ours & y[last + i]) ^ material.mask[last + i] ^ groups.generate[i];
  return top;
}

}  // namespace training
