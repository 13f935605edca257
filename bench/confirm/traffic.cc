#include "confirm/traffic.h"

#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

namespace leat::bench {
namespace {

constexpr unsigned kSenderShift = 48;

std::uint64_t stamp_of(std::uint64_t sender, std::uint64_t index) {
  return sender << kSenderShift | index;
}

std::uint64_t word_at(const std::byte* place) {
  std::uint64_t word = 0;
  std::memcpy(&word, place, sizeof word);
  return word;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

Traffic::Traffic(std::vector<std::size_t> sizes) : sizes_(std::move(sizes)) {
  offsets_.resize(sizes_.size());
  std::exclusive_scan(sizes_.begin(), sizes_.end(), offsets_.begin(), std::size_t{0});
}

std::span<const std::byte> Traffic::message(std::uint64_t sender, std::uint64_t index) {
  if (memory_.empty()) memory_.resize(offsets_.back() + sizes_.back(), std::byte{1});
  const std::size_t at = place(index);
  const std::span<std::byte> bytes = std::span(memory_).subspan(offsets_[at], sizes_[at]);
  const std::uint64_t stamp = stamp_of(sender, index);
  std::memcpy(bytes.data(), &stamp, sizeof stamp);
  std::memcpy(bytes.data() + bytes.size() - sizeof stamp, &stamp, sizeof stamp);
  return bytes;
}

void Traffic::check(const Message& message, std::uint64_t sender, std::uint64_t index) const {
  const std::uint64_t stamp = stamp_of(sender, index);
  if (message && message.size() == bytes(index) && word_at(message.data()) == stamp &&
      word_at(message.data() + message.size() - sizeof stamp) == stamp)
    return;
  throw std::runtime_error(
      "message " + std::to_string(index) + " of process " + std::to_string(sender) + ", " +
      std::to_string(bytes(index)) + " bytes, was due, but " +
      (message ? std::to_string(message.size()) + " other bytes came" : "its channel ended"));
}

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void Meter::start() {
  before_ = counters();
  start_ns_ = now_ns();
}

Usage Meter::stop() const {
  const std::int64_t end_ns = now_ns();
  Usage usage = counters();
  usage.start_ns = start_ns_;
  usage.end_ns = end_ns;
  usage.cpu_seconds -= before_.cpu_seconds;
  usage.requests -= before_.requests;
  usage.receives -= before_.receives;
  usage.completions -= before_.completions;
  usage.sleeps -= before_.sleeps;
  usage.switches -= before_.switches;
  return usage;
}

Usage Meter::counters() const {
  Usage usage;
  for (const Channel* channel : channels_) {
    const Stats stats = channel->stats();
    usage.requests += stats.send_requests;
    usage.receives += stats.receive_requests;
    usage.completions += stats.completions;
    usage.sleeps += stats.sleeps;
  }
  rusage resources{};
  getrusage(RUSAGE_SELF, &resources);
  usage.cpu_seconds = seconds(resources.ru_utime) + seconds(resources.ru_stime);
  usage.switches = static_cast<std::uint64_t>(resources.ru_nvcsw + resources.ru_nivcsw);
  return usage;
}

}  // namespace leat::bench
