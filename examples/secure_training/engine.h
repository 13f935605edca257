// What the training of a network computes with. The same training code runs on plain numbers and on
// secret shares, at each party and at the dealer (SecureEngine).
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "leat/scml/parser.h"
#include "matrix.h"

namespace training {

// A part of one step of training, for the plan and for the table at the end.
struct Stage {
  std::string name;  // unique: "fc1", "relu1 gradient"
  std::size_t layer = 0;
  leat::scml::Pass pass = leat::scml::Pass::kForward;
};

// A matrix made ready to be multiplied, as often as wanted; what is in it is the engine's matter.
struct Factor {
  Matrix first;
  Matrix second;
};
Factor transposed(const Factor& factor);

// Which elements were negative; what is in it is the engine's matter.
struct Sign {
  Words opened;
  Words mask;
};

struct Truncation {
  Matrix& matrix;
  unsigned bits;
};

// Matrices of an engine are plain values, or additive shares: sums, differences and shifts to the
// left are computed by the caller, element by element. Errors: what the exchange of messages
// throws. One thread.
class Engine {
 public:
  virtual ~Engine() = default;

  // All calls below stand between these two.
  virtual void begin(const Stage& stage) = 0;
  virtual void end() = 0;

  // Several at once share their rounds.
  virtual std::vector<Factor> prepare(std::initializer_list<const Matrix*> matrices) = 0;
  virtual Matrix multiply(const Factor& left, const Factor& right, Left turn = Left::kAsIs) = 0;
  // Divides by 2^bits, rounding up with the probability of what is cut off. Numbers within
  // kTruncationLimit.
  virtual void truncate(std::initializer_list<Truncation> truncations) = 0;
  // Sets negative elements to 0 and says which they were.
  virtual Sign relu(Matrix& matrix) = 0;
  // Sets the elements to 0 that `sign` says were negative.
  virtual void select(Matrix& matrix, const Sign& sign) = 0;
};

}  // namespace training
