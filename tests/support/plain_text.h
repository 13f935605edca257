// Messages whose bytes can be found again wherever they show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace leat::detail {

// Pseudo-random messages, in which no 8 bytes that begin at a multiple of 8 come twice.
class PlainText {
 public:
  // What counts as found: so many bytes of a message in a row.
  static constexpr std::size_t kRunBytes = 16;

  // Messages of these sizes, each at least kRunBytes.
  explicit PlainText(std::span<const std::size_t> sizes);

  std::size_t count() const { return messages_.size(); }
  std::span<const std::byte> message(std::size_t n) const;

 private:
  friend class PlainTextSearch;

  struct Place {
    std::size_t begin;
    std::size_t bytes;
  };

  std::size_t filter_bit(std::uint64_t word) const;

  std::vector<std::byte> bytes_;  // each message begins at a multiple of 8
  std::vector<Place> messages_;
  // Where in bytes_ the words at multiples of 8 stand. kRunBytes in a row hold one of them whole,
  // wherever they begin.
  std::unordered_map<std::uint64_t, std::size_t> words_;
  std::vector<bool> filter_;  // false for nearly every word that is none of them
};

// Remembers which bytes of a plain text showed somewhere. The text must outlive it.
class PlainTextSearch {
 public:
  explicit PlainTextSearch(const PlainText& text) : text_(text), found_(text.bytes_.size()) {}

  // Finds every run of at least PlainText::kRunBytes, at every alignment in `seen` and in the text.
  void look_in(std::span<const std::byte> seen);
  // How many bytes of that message were in such runs.
  std::size_t found(std::size_t n) const;

 private:
  const PlainText& text_;
  std::vector<bool> found_;  // of each byte of the text
};

}  // namespace leat::detail
