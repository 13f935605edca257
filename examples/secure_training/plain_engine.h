// Fixed-point numbers in the clear: what the secure training is compared with.
#pragma once

#include "engine.h"
#include "prg.h"

namespace training {

class PlainEngine final : public Engine {
 public:
  // The key decides how truncation rounds.
  explicit PlainEngine(const Key& key) : rounding_(key, 0) {}

  void begin(const Stage&) override {}
  void end() override {}
  std::vector<Factor> prepare(std::initializer_list<const Matrix*> matrices) override;
  Factor prepare_samples(const Matrix& samples) override { return {samples, {}}; }
  std::vector<Matrix> multiply(std::initializer_list<Product> products) override;
  Sign relu(Matrix& matrix) override;
  void select(Matrix& matrix, const Sign& sign) override;

  // How many products were outside of what the secure protocol can do.
  std::size_t overflows() const noexcept { return overflows_; }

 private:
  void truncate(std::span<Word> numbers, unsigned bits);

  Prg rounding_;
  std::size_t overflows_ = 0;
};

}  // namespace training
