#include "support/plain_text.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "support/pattern.h"

namespace leat::detail {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr unsigned kFilterBits = 24;

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + at, kWordBytes);
  return word;
}

}  // namespace

PlainText::PlainText(std::span<const std::size_t> sizes) : filter_(std::size_t{1} << kFilterBits) {
  for (const std::size_t bytes : sizes) {
    if (bytes < kRunBytes) throw std::invalid_argument("a message too short to be found");
    const std::size_t begin = bytes_.size();
    const std::size_t words = (bytes + kWordBytes - 1) / kWordBytes;
    bytes_.resize(begin + words * kWordBytes);
    fill_pattern(std::span(bytes_).subspan(begin), messages_.size());
    messages_.push_back({begin, bytes});
  }
  for (std::size_t at = 0; at < bytes_.size(); at += kWordBytes) {
    const std::uint64_t word = word_at(bytes_, at);
    if (!words_.emplace(word, at).second) throw std::logic_error("8 bytes come twice");
    filter_[filter_bit(word)] = true;
  }
}

std::span<const std::byte> PlainText::message(std::size_t n) const {
  return std::span(bytes_).subspan(messages_.at(n).begin, messages_.at(n).bytes);
}

std::size_t PlainText::filter_bit(std::uint64_t word) const {
  return word * 0x9e3779b97f4a7c15u >> (64 - kFilterBits);
}

void PlainTextSearch::look_in(std::span<const std::byte> seen) {
  const std::span<const std::byte> text = text_.bytes_;
  for (std::size_t at = 0; at + kWordBytes <= seen.size(); ++at) {
    const std::uint64_t word = word_at(seen, at);
    if (!text_.filter_[text_.filter_bit(word)]) continue;
    const auto known = text_.words_.find(word);
    if (known == text_.words_.end()) continue;
    const std::size_t place = known->second;
    std::size_t before = 0, after = kWordBytes;
    while (before < std::min(at, place) && seen[at - before - 1] == text[place - before - 1])
      ++before;
    while (after < std::min(seen.size() - at, text.size() - place) &&
           seen[at + after] == text[place + after])
      ++after;
    if (before + after < PlainText::kRunBytes) continue;
    std::fill_n(found_.begin() + static_cast<std::ptrdiff_t>(place - before), before + after, true);
    at += after - kWordBytes;  // a later run may share less than a word with this one
  }
}

std::size_t PlainTextSearch::found(std::size_t n) const {
  const PlainText::Place place = text_.messages_.at(n);
  const auto begin = found_.begin() + static_cast<std::ptrdiff_t>(place.begin);
  return static_cast<std::size_t>(
      std::count(begin, begin + static_cast<std::ptrdiff_t>(place.bytes), true));
}

}  // namespace leat::detail
