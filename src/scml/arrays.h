// Assembles the message arrays of one operation from the building blocks of each profile, which
// docs/scml.md lists with their sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leat/scml/parser.h"
#include "scml/ciphertexts.h"

namespace leat::scml::detail {

// The random material that two parties consume: Beaver triples, and random numbers and bits of
// which they also have other shares.
struct TripleDemand {
  std::optional<MatrixProduct> matrix;
  std::uint64_t scalars = 0;
  std::uint64_t words = 0;    // each of 32 bit triples
  std::uint64_t edabits = 0;  // numbers with shares of their bits
  std::uint64_t dabits = 0;   // bits that are shared numbers, too

  bool empty() const {
    return !matrix && scalars == 0 && words == 0 && edabits == 0 && dabits == 0;
  }
};

// The form in which a layer of that protocol takes and leaves its data.
inline Protocol form_of_data(Protocol protocol, Profile profile) {
  if (protocol == Protocol::kGc) return protocol;
  const bool is_bits = protocol == Protocol::kBoolean && profile == Profile::kSecureMlAby3;
  return is_bits ? protocol : Protocol::kSs;
}

// A product of matrices as a layer computes it; a convolution's are lowered. `unopened`: the
// numbers of both factors that no earlier product has opened. `results`: those of the result, in
// which overlapping windows of an image are summed.
struct LayerProduct {
  MatrixProduct matrices;
  std::uint64_t unopened = 0;
  std::uint64_t results = 0;
};

using Rounds = std::vector<std::uint64_t>;  // elements handled in each

// For one operation. All counts are checked; `where` names the layer in errors.
class ArrayBuilder {
 public:
  ArrayBuilder(const ParseOptions& options, std::string where)
      : options_(options), where_(std::move(where)) {}

  std::uint64_t product(std::initializer_list<std::uint64_t> factors) const;
  Profile profile() const { return options_.profile; }
  // Whether a comparison by that protocol takes and leaves shared numbers.
  bool is_on_numbers(Protocol protocol) const {
    return form_of_data(protocol, profile()) == Protocol::kSs;
  }
  // Whether products open their factors under masks; and whether a step of training opens each
  // matrix once, for all products with it.
  bool opens_factors() const {
    return options_.form == Form::kMatrix && (options_.parties == 2 || profile() == Profile::kBest);
  }
  bool keeps_opened() const {
    return options_.train && opens_factors() && profile() != Profile::kPiranha;
  }

  // Arithmetic secret sharing: products of numbers, and of matrices with their rescaling as
  // fixed-point numbers, and the rescaling alone.
  void multiply(const Rounds& rounds);
  void multiply_matrices(const LayerProduct& layer);
  void truncate(const Rounds& rounds);
  // What Piranha reveals of a network's output for the loss, and the mean's division.
  void reveal_for_loss(std::uint64_t elements);

  // Comparisons on shared numbers, in kPiranha and kBest: finds signs and multiplies by them, and
  // multiplies others by the same signs. `and_bits`: Piranha's, of so many bits, 32 to a message.
  void rectify(const Rounds& rounds);
  void select(const Rounds& rounds);
  void and_bits(const Rounds& rounds);

  // Secret sharing of bits, in kSecureMlAby3: ANDs of 32-bit words, the greater of two words (with
  // its selection), and a sum of as many words as there are parties.
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
  // All of that demand; matrices by the one or the other.
  void make_triples(const TripleDemand& demand, Protocol matrices);

  std::vector<MessageArray>& arrays() { return arrays_; }
  const TripleDemand& demand() const { return demand_; }

 private:
  void append(const std::string& content, std::uint64_t message_bytes, Rounds rounds,
              std::vector<Flow> flows);
  // Each number to all that hold shares, in words of so many bytes.
  void open(const std::string& content, std::uint64_t message_bytes, const Rounds& rounds);
  void compare_bytes(const Rounds& rounds);
  void compare_planes(const Rounds& rounds);
  // The parties that hold shares of numbers.
  unsigned holders() const { return profile() == Profile::kBest ? 2 : options_.parties; }
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
