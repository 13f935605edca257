// What the training of a network computes with. The same training code runs on plain numbers and on
// secret shares, at each party and at the dealer (SecureEngine).
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
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
Factor rows_of(const Factor& factor, std::span<const std::size_t> numbers);

// Which elements were negative; what is in it is the engine's matter.
struct Sign {
  Words opened;
  Words mask;
};

// left * right, divided by 2^bits.
struct Product {
  const Factor& left;
  const Factor& right;
  unsigned bits = kFractionBits;
  Left turn = Left::kAsIs;

  std::size_t rows() const noexcept {
    return turn == Left::kTransposed ? left.first.columns : left.first.rows;
  }
  std::size_t columns() const noexcept { return right.first.columns; }
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
  // The same of samples, whose owner is the dealer: there `samples` are the numbers themselves.
  // Once for a whole training; rows_of takes the rows of a batch.
  virtual Factor prepare_samples(const Matrix& samples) = 0;
  // Rounds up with the probability of what division cuts off. Before it, products must be within
  // kTruncationLimit. Several at once share their rounds.
  virtual std::vector<Matrix> multiply(std::initializer_list<Product> products) = 0;
  // Sets negative elements to 0 and says which they were.
  virtual Sign relu(Matrix& matrix) = 0;
  // Sets the elements to 0 that `sign` says were negative.
  virtual void select(Matrix& matrix, const Sign& sign) = 0;
};

}  // namespace training
