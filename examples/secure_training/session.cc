#include "session.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "sha256.h"

namespace training {
namespace {

using leat::scml::Pass;

constexpr std::uint64_t kInputStream = 3;  // of the keys; multiplication.cc has those before
constexpr std::size_t kKeyWords = sizeof(Key) / sizeof(Word);
constexpr std::size_t kHeadWords = kKeyWords + 2;  // key and order
constexpr std::size_t kPieceWords = std::size_t{1} << 18;
constexpr std::size_t kDigestWords = 64 / sizeof(Word);  // hexadecimal
constexpr std::size_t kOutcomeWords = kDigestWords + 4;

template <typename Value>
void copy_to(std::span<Word> words, const Value& value) {
  std::memcpy(words.data(), &value, sizeof value);
}
template <typename Value>
Value copy_from(std::span<const Word> words) {
  Value value;
  std::memcpy(&value, words.data(), sizeof value);
  return value;
}

std::vector<Matrix> input_shapes(const Settings& settings) {
  const auto& widths = settings.network.widths;
  std::vector<Matrix> shapes{{settings.samples, widths.front(), {}},
                             {settings.samples, widths.back(), {}}};
  for (Matrix& shape : weight_shapes(settings.network)) shapes.push_back(std::move(shape));
  return shapes;
}

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// In pieces, so that the memory for messages in flight stays small.
template <typename Do>
void in_pieces(std::size_t words, Do&& do_piece) {
  for (std::size_t at = 0; at < words; at += kPieceWords)
    do_piece(at, std::min(kPieceWords, words - at));
}

void take(Exchange& exchange, unsigned peer, Words& into, std::size_t words) {
  into.reserve(into.size() + words);
  in_pieces(words, [&](std::size_t, std::size_t count) {
    const std::span<const Word> in = exchange.receive(peer, count);
    into.insert(into.end(), in.begin(), in.end());
  });
}

void send(Exchange& exchange, unsigned peer, std::span<const Word> words) {
  in_pieces(words.size(), [&](std::size_t at, std::size_t count) {
    std::ranges::copy(words.subspan(at, count), exchange.reserve(peer, count).begin());
    exchange.commit(peer);
  });
}

}  // namespace

Stage input_stage() { return {"inputs", 0, Pass::kForward}; }
Stage dealing_stage() { return {"dealing", 0, Pass::kOffline}; }
Stage output_stage() { return {"output", 0, Pass::kForward}; }
Stage samples_stage() { return {"samples", 0, Pass::kForward}; }

std::vector<Matrix> weight_shapes(const Network& network) {
  std::vector<Matrix> shapes;
  for (std::size_t layer = 0; layer < network.layers(); ++layer)
    shapes.push_back({network.widths[layer], network.widths[layer + 1], {}});
  return shapes;
}

Inputs take_inputs(Exchange& exchange, Role role, const Settings& settings) {
  exchange.begin(input_stage());
  const std::span<const Word> head = exchange.receive(kOwner, kHeadWords);
  Inputs inputs;
  inputs.key = copy_from<Key>(head);
  inputs.order_seed = copy_from<std::uint64_t>(head.subspan(kKeyWords));
  std::vector<Matrix> matrices = input_shapes(settings);
  Prg prg(inputs.key, kInputStream);
  for (Matrix& matrix : matrices) {
    if (role == Role::kFirst)
      matrix.words = prg.draw(matrix.size());
    else
      take(exchange, kOwner, matrix.words, matrix.size());
  }
  exchange.end();
  inputs.samples = std::move(matrices[0]);
  inputs.labels = std::move(matrices[1]);
  inputs.weights.assign(std::make_move_iterator(matrices.begin() + 2),
                        std::make_move_iterator(matrices.end()));
  return inputs;
}

void share_inputs(Exchange& exchange, const Settings& settings, const OwnerInputs& inputs) {
  exchange.begin(input_stage());
  for (const unsigned peer : {kFirstParty, kSecondParty}) {
    const std::span<Word> head = exchange.reserve(peer, kHeadWords);
    copy_to(head, peer == kFirstParty ? inputs.keys.first : inputs.keys.second);
    copy_to(head.subspan(kKeyWords), inputs.order_seed);
    exchange.commit(peer);
  }
  Prg prg(inputs.keys.first, kInputStream);
  const auto send_share = [&](const Matrix& matrix) {
    Words share = prg.draw(matrix.size());
    for (std::size_t i = 0; i < share.size(); ++i) share[i] = matrix.words[i] - share[i];
    send(exchange, kSecondParty, share);
  };
  send_share(inputs.digits.pictures);
  send_share(unit_vectors(inputs.digits.labels, settings.network.widths.back()));
  for (const Matrix& matrix : inputs.weights) send_share(matrix);
  exchange.end();
}

Words take_corrections(Exchange& exchange, std::size_t words) {
  Words corrections;
  exchange.begin(dealing_stage());
  take(exchange, kOwner, corrections, words);
  exchange.end();
  return corrections;
}

void send_corrections(Exchange& exchange, const Words& corrections) {
  exchange.begin(dealing_stage());
  send(exchange, kSecondParty, corrections);
  exchange.end();
}

Outcome give_weights(Exchange& exchange, const std::vector<Matrix>& weights) {
  exchange.begin(output_stage());
  for (const Matrix& matrix : weights) send(exchange, kOwner, matrix.words);
  const std::span<const Word> in = exchange.receive(kOwner, kOutcomeWords);
  const auto text = copy_from<std::array<char, 64>>(in);
  Outcome outcome{{text.begin(), text.end()},
                  copy_from<double>(in.subspan(kDigestWords)),
                  copy_from<double>(in.subspan(kDigestWords + 2))};
  exchange.end();
  return outcome;
}

std::vector<Matrix> take_weights(Exchange& exchange, const Settings& settings) {
  exchange.begin(output_stage());
  std::vector<Matrix> weights = weight_shapes(settings.network);
  for (Matrix& matrix : weights) {
    take(exchange, kFirstParty, matrix.words, matrix.size());
    Matrix other = matrix;
    other.words.clear();
    take(exchange, kSecondParty, other.words, other.size());
    add(matrix, other);
  }
  return weights;
}

void send_outcome(Exchange& exchange, const Outcome& outcome) {
  for (const unsigned peer : {kFirstParty, kSecondParty}) {
    const std::span<Word> out = exchange.reserve(peer, kOutcomeWords);
    std::memcpy(out.data(), outcome.weights_sha256.data(), kDigestWords * sizeof(Word));
    copy_to(out.subspan(kDigestWords), outcome.accuracy);
    copy_to(out.subspan(kDigestWords + 2), outcome.plain_accuracy);
    exchange.commit(peer);
  }
  exchange.end();
}

std::unique_ptr<Engine> make_engine(unsigned parties, Role role, Material& material,
                                    Exchange* exchange, const ReplicatedEngine::Keys& keys) {
  if (parties == 2) return std::make_unique<BeaverEngine>(role, material, exchange);
  return std::make_unique<ReplicatedEngine>(role, &material, exchange, keys);
}

Factor prepare_samples(Engine& engine, const Matrix& samples, std::size_t batch) {
  Factor all{{samples.rows, samples.columns, {}}, {samples.rows, samples.columns, {}}};
  std::vector<std::size_t> numbers(samples.rows);
  std::iota(numbers.begin(), numbers.end(), 0);
  engine.begin(samples_stage());
  for (std::size_t at = 0; at < numbers.size(); at += batch) {
    const auto some = std::span(numbers).subspan(at, std::min(batch, numbers.size() - at));
    const Factor piece = engine.prepare_samples(rows_of(samples, some));
    append(all.first.words, piece.first.words);
    append(all.second.words, piece.second.words);
  }
  engine.end();
  return all;
}

std::string sha256_of(const std::vector<Matrix>& weights) {
  Sha256 digest;
  for (const Matrix& matrix : weights) digest.update(std::as_bytes(std::span(matrix.words)));
  return digest.hex();
}

}  // namespace training
