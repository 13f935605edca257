// Runs a fuzz target without a fuzzer: every file of its corpus, then mutations of them that are
// the same each time. Arguments: the corpus folder, the number of mutations.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::uint64_t kSeed = 20240229;
constexpr std::size_t kMaxInputBytes = 8192;

std::vector<Input> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());  // the same order on every machine
  std::vector<Input> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

void run(const Input& input) {
  // A copy of exactly that size, so that AddressSanitizer sees a read past its end.
  const auto exact = std::make_unique<std::uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), exact.get());
  LLVMFuzzerTestOneInput(exact.get(), input.size());
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Input>& corpus) : corpus_(corpus) {}

  Input next() {
    Input input = pick();
    for (std::size_t steps = 1 + below(4); steps > 0; --steps) mutate(input);
    input.resize(std::min(input.size(), kMaxInputBytes));
    return input;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const Input& pick() { return corpus_[below(corpus_.size())]; }
  Input::iterator place(Input& input) {
    return input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1));
  }

  void mutate(Input& input) {
    static constexpr std::uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff, '\n', '%', '=', ',', ':'};
    const auto at = place(input);
    const auto left = static_cast<std::size_t>(input.end() - at);
    switch (below(6)) {
      case 0:
        if (left > 0) *at = static_cast<std::uint8_t>(random_());
        break;
      case 1:
        if (left > 0) *at = static_cast<std::uint8_t>(*at ^ (1U << below(8)));
        break;
      case 2:
        input.insert(at, kEdges[below(std::size(kEdges))]);
        break;
      case 3:
        input.erase(at,
                    at + static_cast<std::ptrdiff_t>(below(std::min<std::size_t>(left, 16) + 1)));
        break;
      case 4:
        if (left > 0) *at = kEdges[below(std::size(kEdges))];
        break;
      default: {
        // The rest of another one.
        const Input& other = pick();
        const std::size_t from = below(other.size() + 1);
        input.erase(at, input.end());
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_{kSeed};
};

}  // namespace

int main(int argc, char** argv) {
  std::size_t mutations = 0;
  if (argc != 3 ||
      std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), mutations).ec != std::errc()) {
    std::fprintf(stderr, "Usage: %s CORPUS_FOLDER MUTATIONS\n", argv[0]);
    return 2;
  }
  std::size_t round = 0;
  try {
    const std::vector<Input> corpus = read_corpus(argv[1]);
    if (corpus.empty()) throw std::runtime_error("the corpus is empty");
    for (const Input& input : corpus) run(input);
    Mutator mutator(corpus);
    for (; round < mutations; ++round) run(mutator.next());
    std::printf("%zu files and %zu mutations: fine\n", corpus.size(), mutations);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mutation %zu: %s\n", round, error.what());
    return 1;
  }
  return 0;
}
