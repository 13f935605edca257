// Each protocol of the secure training against plain arithmetic, with two and with three parties.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include "examples/memory_exchange.h"
#include "secure_training/bit_planes.h"
#include "secure_training/plain_engine.h"

namespace training {
namespace {

constexpr std::int32_t kLimit = static_cast<std::int32_t>(kTruncationLimit);

Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed) {
  return {rows, columns, Prg(key_from(seed, 77), 0).draw(rows * columns)};
}

// One row. Random words, cut to `bits` with their sign.
Matrix random_numbers(std::size_t count, unsigned bits, std::uint64_t seed) {
  Matrix numbers = random_matrix(1, count, seed);
  for (Word& word : numbers.words)
    word = static_cast<Word>(static_cast<std::int32_t>(word) >> (32 - bits));
  return numbers;
}

Matrix row_of(const std::vector<std::int32_t>& numbers) {
  Matrix row{1, numbers.size(), {}};
  for (const std::int32_t number : numbers) row.words.push_back(static_cast<Word>(number));
  return row;
}

Matrix one(Matrix matrix) { return matrix; }

class SecureProtocols : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Parties, SecureProtocols, testing::Values(2U, 3U),
                         [](const auto& parties) { return std::to_string(parties.param); });

// So small that products stay within what can be truncated.
Matrix small_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed) {
  return {rows, columns, random_numbers(rows * columns, 11, seed).words};
}

// `result` is `product` divided by 2^bits, rounded up or down.
void expect_quotient(const Matrix& result, const Matrix& product, unsigned bits) {
  ASSERT_EQ(result.words.size(), product.words.size());
  for (std::size_t i = 0; i < product.words.size(); ++i) {
    const double exact =
        std::ldexp(static_cast<std::int32_t>(product.words[i]), -static_cast<int>(bits));
    ASSERT_LT(std::abs(static_cast<std::int32_t>(result.words[i]) - exact), 1) << exact;
  }
}

TEST_P(SecureProtocols, MatricesAreMultiplied) {
  for (const auto& [rows, inner, columns] : std::to_array<std::array<std::size_t, 3>>(
           {{1, 1, 1}, {8, 16, 32}, {13, 70, 45}, {128, 129, 10}, {31, 5, 128}})) {
    const Matrix x = small_matrix(rows, inner, 1), y = small_matrix(inner, columns, 2);
    Matrix expected{rows, columns, Words(rows * columns, 0)};
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        for (std::size_t k = 0; k < inner; ++k)
          expected.words[i * columns + j] += x.words[i * inner + k] * y.words[k * columns + j];
    EXPECT_EQ(product(x, y).words, expected.words);
    for (const unsigned bits : {1U, 9U}) {
      const auto run =
          run_protocol(GetParam(), {x, y}, [bits](Engine& engine, std::vector<Matrix> in) {
            engine.begin({});
            const auto factors = engine.prepare({&in.at(0), &in.at(1)});
            auto out = engine.multiply({{factors[0], factors[1], bits}});
            engine.end();
            return out;
          });
      expect_quotient(run.results.at(0), expected, bits);
    }
  }
}

TEST_P(SecureProtocols, OneFactorServesSeveralProducts) {
  const Matrix x = small_matrix(20, 30, 3), y = small_matrix(30, 40, 4),
               z = small_matrix(20, 40, 5);
  const auto run = run_protocol(GetParam(), {x, y, z}, [](Engine& engine, std::vector<Matrix> in) {
    engine.begin({});
    const auto factors = engine.prepare({&in.at(0), &in.at(1), &in.at(2)});
    const Factor turned = transposed(factors[1]);
    auto out = engine.multiply({{factors[0], factors[1], 1},
                                {factors[0], factors[2], 5, Left::kTransposed},
                                {factors[2], turned, 12}});
    engine.end();
    return out;
  });
  expect_quotient(run.results.at(0), product(x, y), 1);
  expect_quotient(run.results.at(1), product(x, z, Left::kTransposed), 5);
  expect_quotient(run.results.at(2), product(z, transposed(y)), 12);
}

// So many, in any order.
std::vector<std::size_t> some_rows(const Matrix& samples, std::size_t count) {
  std::vector<std::size_t> numbers = shuffled(samples.rows, 1, 1);
  numbers.resize(count);
  return numbers;
}

// Rows of the samples as left factor, and turned.
std::vector<Matrix> multiply_samples(Engine& engine, std::vector<Matrix> in) {
  const Factor samples = prepare_samples(engine, in.at(2), 7);
  const Factor rows = rows_of(samples, some_rows(in.at(2), in.at(1).rows));
  engine.begin({});
  const auto factors = engine.prepare({&in.at(0), &in.at(1)});
  auto out = engine.multiply({{rows, factors[0], 1}, {rows, factors[1], 3, Left::kTransposed}});
  engine.end();
  return out;
}

TEST_P(SecureProtocols, SamplesOfTheDealerAreMultiplied) {
  const Matrix y = small_matrix(30, 40, 4), z = small_matrix(4, 10, 5),
               samples = small_matrix(20, 30, 3);
  const auto run = run_protocol(GetParam(), {y, z}, multiply_samples, 1, Shares::kRandom, samples);
  const Matrix rows = rows_of(samples, some_rows(samples, z.rows));
  expect_quotient(run.results.at(0), product(rows, y), 1);
  expect_quotient(run.results.at(1), product(rows, z, Left::kTransposed), 3);
  // Of the samples, three parties replicate each once; two open nothing.
  const std::size_t factors = y.size() + z.size(), products = 4 * 40 + 30 * 10;
  EXPECT_EQ(run.wires->sent(kFirstParty, kSecondParty).size(),
            factors + products + (GetParam() == 3 ? samples.size() : 0));
}

// Numbers times one.
Matrix truncated(unsigned parties, const Matrix& numbers, unsigned bits, std::uint64_t seed) {
  return one(run_protocol(
                 parties, {row_of({1}), numbers},
                 [bits](Engine& engine, std::vector<Matrix> in) {
                   engine.begin({});
                   const auto factors = engine.prepare({&in[0], &in[1]});
                   auto out = engine.multiply({{factors[0], factors[1], bits}});
                   engine.end();
                   return out;
                 },
                 seed)
                 .results.at(0));
}

TEST_P(SecureProtocols, TruncationOfAMillionNumbersIsOffByLessThanOne) {
  for (const unsigned bits : {kFractionBits, 20U}) {
    const Matrix numbers = random_numbers(1'000'000, 31, bits);
    const Matrix result = truncated(GetParam(), numbers, bits, 5 + bits);
    double error = 0;
    for (std::size_t i = 0; i < numbers.words.size(); ++i) {
      const auto number = static_cast<std::int32_t>(numbers.words[i]);
      const auto quotient = static_cast<std::int32_t>(result.words[i]);
      const double exact = std::ldexp(number, -static_cast<int>(bits));
      ASSERT_LT(std::abs(quotient - exact), 1) << number;
      error += quotient - exact;
    }
    // Rounding is right on average: the standard deviation of the sum is below 500.
    EXPECT_LT(std::abs(error), 3000) << bits;
  }
}

TEST_P(SecureProtocols, TruncationAtTheEdges) {
  std::vector<std::int32_t> edges{0, 1, -1, 2, -2, kLimit - 1, -kLimit, -kLimit + 1};
  for (const std::int32_t power : {1 << kFractionBits, 1 << 20, 1 << 29})
    for (const std::int32_t ulp : {-1, 0, 1})
      edges.insert(edges.end(), {power + ulp, -power + ulp});
  const Matrix numbers = row_of(edges);
  for (const unsigned bits : {1U, kFractionBits, 24U, 30U}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const Matrix result = truncated(GetParam(), numbers, bits, seed);
      for (std::size_t i = 0; i < edges.size(); ++i) {
        const double exact = std::ldexp(edges[i], -static_cast<int>(bits));
        ASSERT_LT(std::abs(static_cast<std::int32_t>(result.words[i]) - exact), 1)
            << edges[i] << " by 2^" << bits;
      }
    }
  }
}

// ReLU, and the second input where the first one was not negative.
std::vector<Matrix> relu_and_select(Engine& engine, std::vector<Matrix> in) {
  engine.begin({});
  const Sign sign = engine.relu(in[0]);
  engine.end();
  engine.begin({});
  engine.select(in[1], sign);
  engine.end();
  return in;
}

void expect_relu(unsigned parties, const Matrix& numbers, std::uint64_t seed) {
  const Matrix others = random_matrix(1, numbers.size(), seed + 1000);
  const auto run = run_protocol(parties, {numbers, others}, relu_and_select, seed);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool negative = static_cast<std::int32_t>(numbers.words[i]) < 0;
    ASSERT_EQ(run.results[0].words[i], negative ? 0 : numbers.words[i]) << numbers.words[i];
    ASSERT_EQ(run.results[1].words[i], negative ? 0 : others.words[i]) << numbers.words[i];
  }
}

TEST_P(SecureProtocols, ReluIsExactForAllOfTheRing) {
  expect_relu(GetParam(), random_numbers(300'000, 32, 9), 1);
  for (unsigned bits = 1; bits < 32; ++bits)
    expect_relu(GetParam(), random_numbers(333, bits, bits), bits);
}

TEST_P(SecureProtocols, ReluAtTheEdges) {
  std::vector<std::int32_t> edges{
      0, 1, -1, 2, -2, kLimit, -kLimit, INT32_MAX, INT32_MIN, INT32_MAX - 1, INT32_MIN + 1};
  for (unsigned bit = 2; bit < 31; ++bit) {
    const std::int32_t power = 1 << bit;
    edges.insert(edges.end(), {power, power - 1, -power, -power + 1, -power - 1});
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) expect_relu(GetParam(), row_of(edges), seed);
}

TEST_P(SecureProtocols, ReluOfAnyCount) {
  for (const std::size_t count : {1, 31, 32, 33, 63, 64, 65})
    expect_relu(GetParam(), random_numbers(count, 32, count), count);
}

// --- nothing is sent bare

// Each bit of many words is 1 half of the time: 6 standard deviations.
bool looks_uniform(const Words& words) {
  const double allowed = 6 * std::sqrt(static_cast<double>(words.size())) / 2;
  for (unsigned bit = 0; bit < 32; ++bit) {
    double ones = 0;
    for (const Word word : words) ones += word >> bit & 1;
    if (std::abs(ones - static_cast<double>(words.size()) / 2) > allowed) return false;
  }
  return true;
}

// Of what two parties sent each other, the sums and the differences without carry are what they
// have opened, whether numbers or bits.
void expect_masked(const Wires& wires, const char* what) {
  const Words& there = wires.sent(kFirstParty, kSecondParty);
  const Words& back = wires.sent(kSecondParty, kFirstParty);
  ASSERT_EQ(there.size(), back.size());
  ASSERT_GT(there.size(), 10'000U) << what;
  Words sums(there.size()), differences(there.size());
  for (std::size_t i = 0; i < there.size(); ++i) {
    sums[i] = there[i] + back[i];
    differences[i] = there[i] ^ back[i];
  }
  EXPECT_TRUE(looks_uniform(there)) << what;
  EXPECT_TRUE(looks_uniform(back)) << what;
  EXPECT_TRUE(looks_uniform(sums)) << what;
  EXPECT_TRUE(looks_uniform(differences)) << what;
  const Words& helped = wires.sent(kOwner, kSecondParty);
  EXPECT_TRUE(looks_uniform(helped)) << what;
  EXPECT_TRUE(wires.sent(kOwner, kFirstParty).empty()) << what;
  EXPECT_TRUE(wires.sent(kFirstParty, kOwner).empty()) << what;
  EXPECT_TRUE(wires.sent(kSecondParty, kOwner).empty()) << what;
}

TEST_P(SecureProtocols, WhatIsOpenedLooksUniform) {
  // Values as little random as can be, and shares that hide nothing: what looks random is masked.
  for (const std::int32_t value : {0, 1, -1, 12345678}) {
    const Matrix numbers{200, 200, Words(40'000, static_cast<Word>(value))};
    const auto run = [&](const Protocol& protocol) {
      return run_protocol(GetParam(), {numbers, numbers}, protocol, 3, Shares::kBare).wires;
    };
    expect_masked(*run([](Engine& engine, std::vector<Matrix> in) {
      engine.begin({});
      const auto factors = engine.prepare({&in.at(0), &in.at(1)});
      auto out = engine.multiply({{factors[0], factors[1]}});
      engine.end();
      return out;
    }),
                  "product");
    const auto samples =
        run_protocol(GetParam(), {numbers, numbers}, multiply_samples, 3, Shares::kBare, numbers);
    expect_masked(*samples.wires, "product of samples");
    expect_masked(*run(relu_and_select), "relu");
  }
}

// Each level of the comparison by itself is too small a part to stand out above.
TEST_P(SecureProtocols, EveryRoundOfReluLooksUniform) {
  const std::size_t count = 1 << 17, plane = count / 32;
  for (const std::int32_t value : {0, -1, 4711}) {
    const Matrix numbers{1, count, Words(count, static_cast<Word>(value))};
    const auto run =
        run_protocol(GetParam(), {numbers, numbers}, relu_and_select, 4, Shares::kBare);
    const Words& there = run.wires->sent(kFirstParty, kSecondParty);
    const Words& back = run.wires->sent(kSecondParty, kFirstParty);
    const std::size_t bits = there.size() - 2 * count;  // between the two masked numbers
    ASSERT_EQ(bits % plane, 0U);
    EXPECT_EQ(bits / plane, 23U + 11 + 5 + 2 + 1);
    for (std::size_t at = count; at < count + bits; at += plane) {
      Words opened(plane), first(plane);
      for (std::size_t i = 0; i < plane; ++i) {
        first[i] = there[at + i];
        opened[i] = there[at + i] ^ back[at + i];
      }
      EXPECT_TRUE(looks_uniform(first)) << "plane " << (at - count) / plane;
      EXPECT_TRUE(looks_uniform(opened)) << "plane " << (at - count) / plane;
    }
  }
}

TEST(Uniformity, IsNotFoundInShares) {
  EXPECT_TRUE(looks_uniform(Prg(key_from(1, 1), 0).draw(100'000)));
  EXPECT_FALSE(looks_uniform(Words(100'000, 0x55555555)));
  Words nearly = Prg(key_from(1, 1), 0).draw(100'000);
  for (std::size_t i = 0; i < nearly.size(); i += 20) nearly[i] |= 1U << 9;
  EXPECT_FALSE(looks_uniform(nearly));
}

TEST(Material, SharesOfTheDealerFit) {
  const Key first_key = key_from(5, 0), second_key = key_from(5, 1);
  Material dealer = Material::dealer(first_key, second_key);
  Material first = Material::first_party(first_key), second = Material::second_party(second_key);
  const auto script = [](Material& material) {
    std::vector<Words> drawn;
    drawn.push_back(material.uniform(100));
    drawn.push_back(material.determined(100, [&](std::span<Word> values) {
      for (std::size_t i = 0; i < 100; ++i) values[i] = drawn[0][i] >> 3;
    }));
    drawn.push_back(material.uniform(10, Sharing::kXor));
    drawn.push_back(material.determined(
        10,
        [&](std::span<Word> values) {
          for (std::size_t i = 0; i < 10; ++i) values[i] = ~drawn[2][i];
        },
        Sharing::kXor));
    return drawn;
  };
  const auto values = script(dealer);
  second.supply(dealer.take_corrections());
  const auto ours = script(first), theirs = script(second);
  for (std::size_t draw = 0; draw < values.size(); ++draw)
    for (std::size_t i = 0; i < values[draw].size(); ++i)
      EXPECT_EQ(values[draw][i],
                draw < 2 ? ours[draw][i] + theirs[draw][i] : (ours[draw][i] ^ theirs[draw][i]));
  EXPECT_THROW(second.determined(1, {}), std::logic_error);
}

TEST(BitPlanes, HaveTheBits) {
  for (const std::size_t count : {1, 32, 100}) {
    const Words numbers = Prg(key_from(6, count), 0).draw(count);
    Words planes(kWordBits * plane_words(count));
    to_planes(numbers, planes);
    for (std::size_t plane = 0; plane < kWordBits; ++plane) {
      const Words bits = unpacked(
          std::span(planes).subspan(plane * plane_words(count), plane_words(count)), count);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(bits[i], numbers[i] >> plane & 1);
    }
  }
}

// --- a whole training

TEST_P(SecureProtocols, TrainingFollowsPlainTraining) {
  Network network{{12, 16, 16, 4}, 32, 2};
  const std::size_t steps = 30;
  // Pictures of a class have three bright pixels of their own.
  Digits digits{{network.batch * steps, 12, {}}, {}};
  std::mt19937_64 random(8);
  for (std::size_t i = 0; i < digits.pictures.rows; ++i) {
    digits.labels.push_back(static_cast<std::uint8_t>(random() % 4));
    for (std::size_t pixel = 0; pixel < 12; ++pixel)
      digits.pictures.words.push_back(encode((pixel / 3 == digits.labels.back() ? 0.7 : 0) +
                                             0.3 * static_cast<double>(random() % 1000) / 1000));
  }
  std::vector<Matrix> inputs = initial_weights(network, 2);
  inputs.push_back(unit_vectors(digits.labels, 4));
  const Protocol training = [&](Engine& engine, std::vector<Matrix> in) {
    const Factor pictures = prepare_samples(engine, in.back(), network.batch);
    in.pop_back();
    const Matrix labels = std::move(in.back());
    in.pop_back();
    Trainer trainer(network, engine, in);
    const auto order = shuffled(pictures.first.rows, 1, 1);
    for (std::size_t step = 0; step < steps; ++step) {
      const auto batch = batch_of(order, step, network.batch);
      trainer.step(rows_of(pictures, batch), rows_of(labels, batch));
    }
    return trainer.weights();
  };
  const auto secure =
      run_protocol(GetParam(), inputs, training, 1, Shares::kRandom, digits.pictures).results;
  PlainEngine plain(key_from(1, 3));
  inputs.push_back(digits.pictures);
  const auto expected = training(plain, inputs);
  EXPECT_EQ(plain.overflows(), 0U);
  EXPECT_GT(accuracy(network, secure, digits.pictures, digits.labels), 0.95);
  EXPECT_GT(accuracy(network, expected, digits.pictures, digits.labels), 0.95);
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < secure.size(); ++i)
    for (std::size_t j = 0; j < secure[i].size(); ++j) {
      distance += std::pow(decode(secure[i].words[j]) - decode(expected[i].words[j]), 2);
      length += std::pow(decode(expected[i].words[j]), 2);
    }
  EXPECT_LT(distance, 0.01 * length);  // rounding differs
}

}  // namespace
}  // namespace training
