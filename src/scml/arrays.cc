#include "scml/arrays.h"

#include <algorithm>

#include "scml/checked.h"
#include "scml/gates.h"

namespace leat::scml::detail {
namespace {

constexpr std::uint64_t kWordBytes = 4;
constexpr Flow kGarblerToEvaluator{0, 1};
constexpr Flow kEvaluatorToGarbler{1, 0};

// Party i to party i + 1: between two, both ways.
std::vector<Flow> ring(unsigned parties) {
  std::vector<Flow> flows;
  for (unsigned i = 0; i < parties; ++i) flows.push_back({i, (i + 1) % parties});
  return flows;
}

// With n parties replicated, party i holds all of n shares but share i.
//
// Three: each sends its share of the product on (Araki et al. 2016; ABY3).
// Four: each two parties know one cross term and input it jointly, one word to one of the other two
// (Fantastic Four, USENIX Security 2021); spread such that each two parties exchange one word.
std::vector<Flow> product_flows(unsigned parties) {
  if (parties < 4) return ring(parties);
  return {{0, 2}, {1, 3}, {3, 0}, {0, 1}, {2, 1}, {3, 2}};
}

// Three: party 0, which knows two shares, gives one of their truncated sum to the other holder
// (ABY3, CCS 2018). Four: the same with two shares known to two parties each, both
// input jointly.
std::vector<Flow> truncation_flows(unsigned parties) {
  if (parties == 3) return {{0, 2}};
  return {{3, 0}, {0, 2}};
}

// Each party to each other one.
std::vector<Flow> everyone(unsigned parties) {
  std::vector<Flow> flows;
  for (unsigned i = 0; i < parties; ++i) {
    for (unsigned j = 0; j < parties; ++j)
      if (i != j) flows.push_back({i, j});
  }
  return flows;
}

// To the holders of the last additive share: what they lack.
std::vector<Flow> share_flows(unsigned parties) {
  if (parties == 2) return {{0, 1}};
  return ring(parties - 1);
}

}  // namespace

std::uint64_t ArrayBuilder::product(std::initializer_list<std::uint64_t> factors) const {
  return checked_product(factors, where_ + ": the number of messages");
}

std::uint64_t ArrayBuilder::sum(const Rounds& rounds) const {
  std::uint64_t result = 0;
  for (const std::uint64_t elements : rounds) result += product({elements});
  return product({result});
}

void ArrayBuilder::append(const std::string& content, std::uint64_t message_bytes, Rounds rounds,
                          std::vector<Flow> flows) {
  checked_product({sum(rounds), message_bytes}, where_ + ": the size of its messages");
  arrays_.push_back({content, message_bytes, std::move(rounds), std::move(flows)});
}

void ArrayBuilder::open(const std::string& content, std::uint64_t message_bytes,
                        const Rounds& rounds) {
  // Replicated shares lack one number, which the party before has.
  append(content, message_bytes, rounds, ring(holders()));
}

void ArrayBuilder::append_products(const char* content, const Rounds& rounds) {
  // Two: both operands are opened under the masks of a Beaver triple.
  append(content, holders() == 2 ? 2 * kWordBytes : kWordBytes, rounds, product_flows(holders()));
}

void ArrayBuilder::multiply(const Rounds& rounds) {
  append_products("products", rounds);
  demand_.scalars += sum(rounds);
}

void ArrayBuilder::multiply_matrices(const LayerProduct& layer) {
  const auto [rows, inner, columns] = layer.matrices;
  const std::uint64_t products = product({rows, inner, columns});
  if (options_.form == Form::kInnerProducts) {
    multiply({products});
  } else if (opens_factors()) {
    if (layer.unopened > 0) append("masked matrices", kWordBytes, {layer.unopened}, ring(2));
    demand_.matrix = layer.matrices;
    // The third holds a share of each factor, too, and hands its part of the product over.
    if (options_.parties > 2) append("summands", kWordBytes, {layer.results}, {{2, 1}});
  } else if (profile() == Profile::kPiranha && options_.parties == 3) {
    // Each party's summand of the product is opened to all, under a mask that truncates.
    return append("truncated products", kWordBytes, {layer.results}, everyone(3));
  } else {
    append_products("products", {layer.results});
  }
  truncate({layer.results});
}

void ArrayBuilder::truncate(const Rounds& rounds) {
  if (profile() != Profile::kSecureMlAby3) {
    demand_.edabits += sum(rounds);  // the number is opened under one
    return open("truncated", kWordBytes, rounds);
  }
  // Two parties truncate their shares locally (SecureML, S&P 2017).
  if (options_.parties == 2) return;
  append("truncated", kWordBytes, rounds, truncation_flows(options_.parties));
}

void ArrayBuilder::reveal_for_loss(std::uint64_t elements) {
  open("outputs", kWordBytes, {elements});
  truncate({elements});
}

void ArrayBuilder::rectify(const Rounds& rounds) {
  demand_.edabits += sum(rounds);
  if (profile() == Profile::kBest) return compare_planes(rounds);
  compare_bytes(rounds);
  select(rounds);
}

void ArrayBuilder::select(const Rounds& rounds) {
  demand_.scalars += sum(rounds);
  // The sign is open already under its mask; the number is opened under another one.
  if (profile() == Profile::kBest) return open("masked", kWordBytes, rounds);
  demand_.dabits += sum(rounds);
  open("signs", 1, rounds);
  append_products("products", rounds);
}

void ArrayBuilder::and_bits(const Rounds& rounds) {
  // Two parties open both bits, each a byte.
  const std::uint64_t and_bytes = holders() == 2 ? 2 : 1;
  Rounds messages;
  for (const std::uint64_t bits : rounds) messages.push_back(divide_up(bits, kWordBits));
  append("ANDs of bits", kWordBits * and_bytes, messages, product_flows(holders()));
  demand_.words += sum(messages);
}

// The number is opened under an edaBit; then the carry into its sign.
void ArrayBuilder::compare_bytes(const Rounds& rounds) {
  open("masked", kWordBytes, rounds);
  Rounds bits;
  for (const std::uint64_t elements : rounds)
    for (const std::uint64_t pairs : kCarryPairs) bits.push_back(product({2 * pairs, elements}));
  and_bits(bits);
}

// The same with all that a level opens of 32 numbers in words, and at last the signs.
void ArrayBuilder::compare_planes(const Rounds& rounds) {
  Rounds words;
  for (const std::uint64_t elements : rounds) {
    const std::uint64_t plane = divide_up(elements, kWordBits);
    words.push_back(elements);
    for (const std::uint64_t planes : kOpenedPlanes) words.push_back(product({planes, plane}));
    words.push_back(plane);
    demand_.words += product({kAndPlanes, plane});
  }
  open("masked", kWordBytes, words);
  demand_.scalars += sum(rounds);  // the mask times the sign's
  demand_.dabits += sum(rounds);
}

void ArrayBuilder::and_words(const Rounds& rounds) {
  append_products("ANDs", rounds);
  demand_.words += sum(rounds);
}

Rounds ArrayBuilder::adder_rounds(std::uint64_t elements, unsigned words) const {
  Rounds rounds(words - 2, elements);
  for (const std::uint64_t gates : kAdderGates) rounds.push_back(product({gates, elements}));
  return rounds;
}

void ArrayBuilder::add_words(std::uint64_t elements) {
  and_words(adder_rounds(elements, options_.parties));
}

void ArrayBuilder::select_greater(const Rounds& comparisons) {
  Rounds rounds;
  for (const std::uint64_t level : comparisons) {
    const Rounds subtraction = adder_rounds(level, 2);
    rounds.insert(rounds.end(), subtraction.begin(), subtraction.end());
    rounds.push_back(level);
  }
  and_words(rounds);
}

void ArrayBuilder::open_to_share(std::uint64_t elements) {
  append("opened", kWordBytes, {elements}, share_flows(options_.parties));
}

void ArrayBuilder::convert_bits(std::uint64_t bits) {
  // As many bits as parties, each a number shared without messages: a xor b = a + b - 2ab.
  multiply(Rounds(options_.parties - 1, bits));
}

void ArrayBuilder::garbled_choices(std::uint64_t elements) {
  append("choices", kWordBits * kLabelBytes, {elements}, {kEvaluatorToGarbler});
}

void ArrayBuilder::garble(std::uint64_t circuits, std::uint64_t gates, std::uint64_t other_bytes) {
  append("garbled", gates * kGarbledGateBytes + other_bytes, {circuits}, {kGarblerToEvaluator});
}

void ArrayBuilder::transfer(std::uint64_t operands, std::uint64_t words) {
  append("choices", kWordBits * kLabelBytes, {operands}, ring(2));
  append("corrections", product({kWordBits * kWordBytes, words}), {operands}, ring(2));
}

void ArrayBuilder::encrypt(const MatrixProduct& matrices) {
  product({matrices.rows, matrices.inner + matrices.columns});
  const CiphertextCounts counts = count_ciphertexts(matrices);
  append("operand ciphertexts", kCiphertextBytes, {counts.operand}, ring(2));
  append("product ciphertexts", kCiphertextBytes, {counts.product}, ring(2));
}

void ArrayBuilder::make_triples(const TripleDemand& demand, Protocol matrices) {
  std::uint64_t scalars = demand.scalars, words = demand.words;
  if (demand.matrix && matrices == Protocol::kHe) encrypt(*demand.matrix);
  if (demand.matrix && matrices != Protocol::kHe)
    transfer(product({demand.matrix->rows, demand.matrix->inner}), demand.matrix->columns);
  // Each party knows the bits of a number of its own; a circuit adds the two.
  if (demand.edabits > 0) {
    const Rounds adder = adder_rounds(demand.edabits, 2);
    append("ANDs", 2 * kWordBytes, adder, ring(2));
    words += sum(adder);
  }
  // As convert_bits.
  if (demand.dabits > 0) {
    append("products", 2 * kWordBytes, {demand.dabits}, ring(2));
    scalars += demand.dabits;
  }
  if (scalars > 0) transfer(scalars, 1);
  if (words > 0) append("bit choices", kWordBits * kLabelBytes, {words}, ring(2));
}

}  // namespace leat::scml::detail
