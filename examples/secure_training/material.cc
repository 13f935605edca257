#include "material.h"

#include <stdexcept>
#include <utility>

namespace training {
namespace {

constexpr std::uint64_t kStream = 0;  // of the keys

void add(std::span<Word> sum, std::span<const Word> more, Sharing sharing) {
  if (sharing == Sharing::kAdditive)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  else
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] ^= more[i];
}

}  // namespace

Material::Material(const std::optional<Key>& first, const std::optional<Key>& second) {
  if (first) first_.emplace(*first, kStream);
  if (second) second_.emplace(*second, kStream);
}

Words Material::uniform(std::size_t count, Sharing sharing) {
  Words words = (first_ ? first_ : second_)->draw(count);
  if (is_dealer()) add(words, second_->draw(count), sharing);
  return words;
}

Words Material::determined(std::size_t count, const std::function<void(std::span<Word>)>& values,
                           Sharing sharing) {
  if (is_dealer()) {
    Words words(count);
    values(words);
    const Words first = first_->draw(count);
    const bool additive = sharing == Sharing::kAdditive;
    for (std::size_t i = 0; i < count; ++i)
      corrections_.push_back(additive ? words[i] - first[i] : words[i] ^ first[i]);
    return words;
  }
  if (first_) return first_->draw(count);
  if (corrections_.size() - used_ < count)
    throw std::logic_error("the dealer's corrections are used up");
  const auto begin = corrections_.begin() + static_cast<std::ptrdiff_t>(used_);
  used_ += count;
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

Words Material::take_corrections() { return std::exchange(corrections_, {}); }

void Material::supply(Words corrections) {
  if (used_ != corrections_.size())
    throw std::logic_error("corrections of the dealer are left over");
  corrections_ = std::move(corrections);
  used_ = 0;
}

}  // namespace training
