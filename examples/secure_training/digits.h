// Pictures of digits with their labels, and the order in which training sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "matrix.h"

namespace training {

struct Digits {
  Matrix pictures;  // a row each, pixels from 0 to 1, encoded
  std::vector<std::uint8_t> labels;

  std::size_t size() const noexcept { return labels.size(); }
};

// As get_digits.sh writes it: a line "digits 1 COUNT PIXELS CLASSES", then for each digit a byte
// per pixel and one for the label. The file is not trusted. Throws std::runtime_error, naming it.
Digits read_digits(const std::string& path, std::size_t pixels, std::size_t classes);

// Rows `numbers` of it.
Digits choose(const Digits& digits, const std::vector<std::size_t>& numbers);
// A row per label: 1 in its column, else 0.
Matrix unit_vectors(const std::vector<std::uint8_t>& labels, std::size_t classes);

// 0 .. count-1, shuffled; the same everywhere for the same seed and round.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed, std::uint64_t round);

}  // namespace training
