// Assembles the message arrays of one operation from the building blocks that docs/scml.md lists
// with their sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leat/scml/parser.h"
#include "scml/ciphertexts.h"

namespace leat::scml::detail {

// The Beaver triples that two parties consume.
struct TripleDemand {
  std::optional<MatrixProduct> matrix;
  std::uint64_t scalars = 0;
  std::uint64_t words = 0;  // each of 32 bit triples

  bool empty() const { return !matrix && scalars == 0 && words == 0; }
};

using Rounds = std::vector<std::uint64_t>;  // elements handled in each

// For one operation. All counts are checked; `where` names the layer in errors.
class ArrayBuilder {
 public:
  ArrayBuilder(const ParseOptions& options, std::string where)
      : options_(options), where_(std::move(where)) {}

  std::uint64_t product(std::initializer_list<std::uint64_t> factors) const;
  // Whether a step of training opens each matrix once, for all products with it.
  bool keeps_opened() const {
    return options_.train && options_.parties == 2 && options_.form == Form::kMatrix;
  }

  // Arithmetic secret sharing: products of numbers and of matrices, and the rescaling of
  // fixed-point products (no messages between two parties).
  void multiply(const Rounds& rounds);
  // `unopened`: the numbers of both matrices that an earlier product has not opened.
  void multiply_matrices(const MatrixProduct& matrices, std::uint64_t unopened);
  void truncate(const Rounds& rounds);

  // Secret sharing of bits: ANDs of 32-bit words, the greater of two words (with its selection),
  // and a sum of as many words as there are parties.
  void and_words(const Rounds& rounds);
  void add_words(std::uint64_t elements);
  // `comparisons` at each level of a tournament.
  void select_greater(const Rounds& comparisons);
  // Passes the result of add_words to the holders of one additive share.
  void open_to_share(std::uint64_t elements);

  // Converts shared bits to shared numbers.
  void convert_bits(std::uint64_t bits);

  // Garbled circuits: party 0 garbles, party 1 evaluates.
  void garble(std::uint64_t circuits, std::uint64_t gates, std::uint64_t other_bytes);
  void garbled_choices(std::uint64_t elements);

  // Oblivious transfer and homomorphic encryption, for matrices and their triples.
  void transfer(std::uint64_t operands, std::uint64_t words);
  void encrypt(const MatrixProduct& matrices);
  void transfer_bits(std::uint64_t words);

  std::vector<MessageArray>& arrays() { return arrays_; }
  const TripleDemand& demand() const { return demand_; }

 private:
  void append(const char* content, std::uint64_t message_bytes, Rounds rounds,
              std::vector<Flow> flows);
  std::uint64_t sum(const Rounds& rounds) const;
  Rounds adder_rounds(std::uint64_t elements, unsigned words) const;
  // The messages of products, or of ANDs of words.
  void append_products(const char* content, const Rounds& rounds);

  const ParseOptions& options_;
  std::string where_;
  std::vector<MessageArray> arrays_;
  TripleDemand demand_;
};

}  // namespace leat::scml::detail
