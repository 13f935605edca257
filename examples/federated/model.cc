#include "model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "files.h"

namespace federated {
namespace {

constexpr std::uint64_t kMaxListBytes = std::uint64_t{4} << 20;

std::string list_path(const std::string& folder) { return folder + "/tensors.txt"; }
std::string tensor_path(const std::string& folder, const Shape& shape) {
  return folder + "/" + shape.name + ".f32";
}

}  // namespace

// The finaliser of MurmurHash3 on a Weyl sequence, as in SplitMix64.
float seeded_value(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
  std::uint64_t bits = (seed * 0xd1342543de82ef95 + index + 1) * kGolden;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  const auto high = static_cast<std::int32_t>((bits ^ bits >> 31) >> 40);  // 24 bits
  return static_cast<float>(high - (1 << 23)) * 0x1p-23F;
}

Model::Model(Shapes shapes) : shapes_(std::move(shapes)) {
  std::uint64_t values = 0;
  for (const Shape& shape : shapes_) {
    starts_.push_back(values);
    values += shape.values();
  }
  values_.resize(values);
}

Model Model::seeded(Shapes shapes, std::uint64_t seed) {
  Model model(std::move(shapes));
  for (std::uint64_t i = 0; i < model.values(); ++i) model.values_[i] = seeded_value(seed, i);
  return model;
}

Model Model::load(const std::string& folder) {
  InputFile list(list_path(folder));
  if (list.size() > kMaxListBytes)
    throw std::runtime_error(list_path(folder) + " is longer than 4 MiB: no list of tensors");
  std::string text(list.size(), '\0');
  list.read(std::as_writable_bytes(std::span(text)));
  Model model(parse_shapes(text));
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Shape& shape = model.shapes_[i];
    const std::string path = tensor_path(folder, shape);
    InputFile file(path);
    if (file.size() != shape.bytes())
      throw std::runtime_error(path + " has " + std::to_string(file.size()) +
                               " bytes, but its shape in tensors.txt means " +
                               std::to_string(shape.bytes()) + " (float32)");
    file.read(std::as_writable_bytes(model.tensor(i)));
  }
  return model;
}

void Model::save(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  const auto write = [](const std::string& path, std::span<const std::byte> bytes) {
    OutputFile file(path, true);
    file.write(bytes);
    file.keep();
  };
  for (std::size_t i = 0; i < size(); ++i)
    write(tensor_path(folder, shapes_[i]), std::as_bytes(tensor(i)));
  const std::string list = to_text(shapes_);
  write(list_path(folder), std::as_bytes(std::span(list)));
}

double train(std::span<float> weights, const Training& training) {
  double squares = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float best = seeded_value(training.data, i);
    float weight = weights[i];
    const double distance = double{weight} - double{best};
    squares += distance * distance;
    for (unsigned step = 0; step < training.steps; ++step)
      weight -= training.rate * (weight - best);
    weights[i] = weight;
  }
  return squares / static_cast<double>(weights.size());
}

void weighted_mean(std::span<const float* const> clients, std::span<const double> weights,
                   std::span<float> mean) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::array<double, 1024> sums;  // stays in the first-level cache
  for (std::size_t start = 0; start < mean.size(); start += sums.size()) {
    const std::size_t count = std::min(sums.size(), mean.size() - start);
    sums.fill(0);
    for (std::size_t client = 0; client < clients.size(); ++client) {
      const float* const values = clients[client] + start;
      for (std::size_t i = 0; i < count; ++i) sums[i] += weights[client] * double{values[i]};
    }
    for (std::size_t i = 0; i < count; ++i) mean[start + i] = static_cast<float>(sums[i] / total);
  }
}

}  // namespace federated
