// The Parser (CORA, section 3.2): derives which messages the parties of a model exchange. It
// computes nothing else: counts and sizes follow from the model, the protocols and the number of
// parties alone. docs/scml.md has the formulas and their sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leat/export.h"
#include "leat/scml/model.h"

namespace leat::scml {

enum class Pass { kOffline, kForward, kBackward };
LEAT_EXPORT std::string_view to_string(Pass pass) noexcept;

// The protocols by which the parties compute on shared numbers and bits. What an operation costs in
// each, and where that is from, is in docs/scml.md, "Profiles".
enum class Profile {
  // Those of Piranha (Watson et al., USENIX Security 2022), which CORA measures (section 6.1), as
  // its program runs them: comparisons with edaBits, a byte for each bit, masks that serve once.
  kPiranha,
  // SecureML between two (S&P 2017), ABY3 among three (CCS 2018), Fantastic Four among four (USENIX
  // Security 2021); ReLU and max pooling on shared bits, with conversions by circuits on words.
  kSecureMlAby3,
  // Those of examples/secure_training (docs/secure_training.md): bits packed into words, a mask for
  // each matrix. Two parties hold shares; a third helps to multiply, a fourth only deals.
  kBest,
};
// "piranha", "secureml-aby3", "best".
LEAT_EXPORT std::string_view to_string(Profile profile) noexcept;
inline constexpr Profile kProfiles[] = {Profile::kPiranha, Profile::kSecureMlAby3, Profile::kBest};

// How matrices are multiplied under secret sharing (section 3.2.1).
enum class Form {
  kMatrix,         // whole matrices: M*N + N*P messages
  kInnerProducts,  // every product of two numbers alone: M*N*P messages
};

// The source of two parties' Beaver triples (section 3.2.4).
enum class Triples {
  kNone,  // a dealer, or an earlier run: no messages
  kOt,
  kHe,  // matrix triples; scalar and bit triples use oblivious transfer
};

struct ParseOptions {
  unsigned parties = 2;  // 2: semi-honest, additive; 3 and 4: replicated
  bool train = false;    // with the backward pass; else inference
  Form form = Form::kMatrix;
  Triples triples = Triples::kNone;
  std::uint64_t batch = 0;  // samples; 0: the model's batch_size
  Profile profile = Profile::kPiranha;
};

// Party `sender` writes into memory of party `receiver`.
struct Flow {
  unsigned sender = 0;
  unsigned receiver = 0;

  friend bool operator==(const Flow&, const Flow&) = default;
};

// Messages of one size in one protocol context, with the indexes 0 to message_count() - 1 along
// each flow. They are ordered by round, and within a round by element, so that adjacent messages
// may travel as one write.
struct MessageArray {
  std::string content;
  std::uint64_t message_bytes = 0;
  std::vector<std::uint64_t> round_messages;
  std::vector<Flow> flows;

  std::size_t rounds() const noexcept { return round_messages.size(); }
  LEAT_EXPORT std::uint64_t message_count() const noexcept;
  std::uint64_t bytes() const noexcept { return message_bytes * message_count(); }
};

// A node of the dependency graph: one layer in one pass, a conversion between protocols, or the
// making of triples. An operation without arrays is local.
struct Operation {
  std::string name;       // unique: "cnn1", "cnn1 to boolean", "cnn1 weight gradient"
  std::size_t layer = 0;  // index in Model::layers
  Pass pass = Pass::kForward;
  Protocol protocol = Protocol::kSs;
  std::vector<std::size_t> inputs;  // earlier operations whose data this one reads
  std::vector<MessageArray> arrays;
  // Earlier operations of which this one uses what the parties have kept since: matrices opened
  // under a mask, bits of choices. It need not be sent again. Their messages need not stay.
  std::vector<std::size_t> reuses;
};

// What the parties do for one batch, in order. Plain value.
struct Task {
  std::string model;
  ParseOptions options;  // with the batch filled in
  std::vector<Operation> operations;
};

// Parses a model from read_model(). Throws leat::Error, naming the layer: kInvalidArgument for an
// unsupported number of parties or protocol, kTooLarge if a count exceeds 64 bits.
LEAT_EXPORT Task parse(const Model& model, const ParseOptions& options);

}  // namespace leat::scml
