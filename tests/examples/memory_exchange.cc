#include "examples/memory_exchange.h"

#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace training {

Words Wires::take(unsigned sender, unsigned receiver, std::size_t words) {
  std::unique_lock lock(mutex_);
  Wire& wire = wires_[sender][receiver];
  changed_.wait(lock, [&] { return broken_ || wire.words.size() - wire.taken >= words; });
  if (broken_) throw std::runtime_error("another party failed");
  const auto first = wire.words.begin() + static_cast<std::ptrdiff_t>(wire.taken);
  wire.taken += words;
  return {first, first + static_cast<std::ptrdiff_t>(words)};
}

void Wires::put(unsigned sender, unsigned receiver, const Words& words) {
  const std::lock_guard lock(mutex_);
  Words& all = wires_[sender][receiver].words;
  all.insert(all.end(), words.begin(), words.end());
  changed_.notify_all();
}

void Wires::break_all() {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  changed_.notify_all();
}

const Words& Wires::sent(unsigned sender, unsigned receiver) const {
  return wires_[sender][receiver].words;
}

std::span<Word> MemoryExchange::reserve(unsigned peer, std::size_t words) {
  reserved_.at(peer).assign(words, 0);
  return reserved_[peer];
}

void MemoryExchange::commit(unsigned peer) { wires_.put(self_, peer, reserved_.at(peer)); }

std::span<const Word> MemoryExchange::receive(unsigned peer, std::size_t words) {
  return received_.emplace_back(wires_.take(peer, self_, words));
}

namespace {

std::vector<Matrix> shapes_of(const std::vector<Matrix>& matrices) {
  std::vector<Matrix> shapes;
  shapes.reserve(matrices.size());
  for (const Matrix& matrix : matrices) shapes.push_back({matrix.rows, matrix.columns, {}});
  return shapes;
}

}  // namespace

ProtocolRun run_protocol(unsigned parties, std::vector<Matrix> inputs, const Protocol& protocol,
                         std::uint64_t seed, Shares shares, const Matrix& samples) {
  const ReplicatedEngine::Keys keys{key_from(seed, 0), key_from(seed, 1)};
  Material dealer = Material::dealer(keys.first, keys.second);
  std::vector<Matrix> dealt = shapes_of(inputs);
  if (samples.has_words()) {
    inputs.push_back(samples);
    dealt.push_back(samples);
  }
  protocol(*make_engine(parties, Role::kDealer, dealer, nullptr, keys), std::move(dealt));

  std::vector<Matrix> first = inputs, second;
  Prg prg(key_from(seed, 2), 0);
  for (Matrix& matrix : first) {
    Matrix share{matrix.rows, matrix.columns, Words(matrix.size(), 0)};
    if (shares == Shares::kRandom) prg.fill(share.words);
    subtract(matrix, share);
    second.push_back(std::move(share));
  }

  ProtocolRun run;
  std::array<std::exception_ptr, kProcesses> failures;
  const auto guarded = [&](unsigned process, const std::function<void()>& body) {
    return std::thread([&, process, body] {
      try {
        body();
      } catch (...) {
        failures[process] = std::current_exception();
        run.wires->break_all();
      }
    });
  };
  std::vector<Matrix> first_results, second_results;
  std::vector<std::thread> threads;
  threads.push_back(guarded(kFirstParty, [&] {
    MemoryExchange exchange(*run.wires, kFirstParty);
    Material material = Material::first_party(keys.first);
    const auto engine = make_engine(parties, Role::kFirst, material, &exchange, {keys.first, {}});
    first_results = protocol(*engine, first);
  }));
  threads.push_back(guarded(kSecondParty, [&] {
    MemoryExchange exchange(*run.wires, kSecondParty);
    Material material = Material::second_party(keys.second);
    material.supply(dealer.take_corrections());
    const auto engine = make_engine(parties, Role::kSecond, material, &exchange, {{}, keys.second});
    second_results = protocol(*engine, second);
    material.supply({});  // throws if corrections are left over
  }));
  if (parties == 3) {
    threads.push_back(guarded(kOwner, [&] {
      MemoryExchange exchange(*run.wires, kOwner);
      ReplicatedEngine engine(Role::kHelper, nullptr, &exchange, keys);
      protocol(engine, shapes_of(inputs));
    }));
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  run.results = std::move(first_results);
  for (std::size_t i = 0; i < run.results.size(); ++i) add(run.results[i], second_results.at(i));
  return run;
}

}  // namespace training
