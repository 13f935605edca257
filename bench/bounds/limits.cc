// leat-bench limits: what no messaging over memory can beat on this machine.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "arguments.h"
#include "bounds/cache_line.h"
#include "cli/allowed.h"
#include "forked_peer.h"
#include "machine.h"
#include "report.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

struct LimitsArguments : RunArguments {
  std::uint64_t window_bytes = 0;
};

// Memory that parent and child share.
class SharedCacheLine {
 public:
  SharedCacheLine() {
    memory_ =
        mmap(nullptr, sizeof(CacheLine), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  }
  SharedCacheLine(const SharedCacheLine&) = delete;
  SharedCacheLine& operator=(const SharedCacheLine&) = delete;
  ~SharedCacheLine() { munmap(memory_, sizeof(CacheLine)); }
  CacheLine& line() { return *static_cast<CacheLine*>(memory_); }

 private:
  void* memory_ = nullptr;
};

Latency measure_cache_line(const RunArguments& arguments, const CorePair& cores,
                           const TickClock& clock, const Progress& progress) {
  SharedCacheLine shared;
  CacheLine& line = shared.line();
  ForkedPeer peer([&](const ForkedPeer::Tell& tell) {
    pin_to_core(cores[1]);
    tell("ready");
    line.answer();
  });
  peer.listen();
  std::uint64_t turn = 0;
  const Latency latency = measure_latency(sizeof line.turn, arguments.length, clock, progress,
                                          [&line, &turn] { line.pass(turn); });
  line.stop();
  peer.wait();
  return latency;
}

// Copies from one buffer to the places of a window in turn, as a sender does into a ring.
Bandwidth measure_memcpy(std::size_t bytes, const LimitsArguments& arguments,
                         const TickClock& clock, const Progress& progress) {
  const std::size_t places = std::max<std::size_t>(1, arguments.window_bytes / bytes);
  std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> window(places * bytes);
  std::size_t place = 0;
  const auto copy = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::byte* target = window.data() + place * bytes;
      std::memcpy(target, source.data(), bytes);
      // The compiler must not merge or drop copies that nothing reads.
      asm volatile("" : : "r"(target) : "memory");
      place = place + 1 == places ? 0 : place + 1;
    }
  };
  return measure_bandwidth(bytes, arguments.length, clock, progress, copy, [] {});
}

void run(const LimitsArguments& arguments) {
  const auto cores = choose_cores(arguments.cpus);
  if (!cores || (*cores)[0] == (*cores)[1]) {
    throw std::runtime_error(
        "a cache line bounces between two cores, but there is only one. "
        "Allow this process two (taskset, --cpus A,B).");
  }
  pin_to_core((*cores)[0]);
  const TickClock clock;
  StepsBar bar("limits", arguments.sizes.size() + 1);
  const Progress progress = [&bar](double fraction) { bar.update(fraction); };
  Report report({.bench = "limits",
                 .title = "Limits of this machine",
                 .device = "memory",
                 .transport = "none",
                 .lines = {{"Cores", describe_cores(cores)}}},
                arguments.json);
  progress(0);
  const Latency latency = measure_cache_line(arguments, *cores, clock, progress);
  bar.step_done();
  report.begin_part("cacheline", "A cache line bounced between two cores");
  report.add(latency);
  report.begin_part("memcpy", "memcpy on one core" +
                                  (arguments.window_bytes == 0
                                       ? std::string(", to the same place each time")
                                       : ", to places that cycle over " +
                                             std::to_string(arguments.window_bytes) + " bytes"));
  for (const std::size_t bytes : arguments.sizes) {
    progress(0);
    const Bandwidth bandwidth = measure_memcpy(bytes, arguments, clock, progress);
    bar.step_done();
    report.add(bandwidth);
  }
  report.finish();
}

}  // namespace

Run declare_limits(CLI::App& command) {
  const auto arguments = std::make_shared<LimitsArguments>();
  arguments->sizes = {1 << 20};
  arguments->length.iterations = 10000;
  add_run_arguments(command, *arguments);
  command
      .add_option("--window", arguments->window_bytes,
                  "memcpy to places that cycle over so many bytes, as in a ring (K, M, G; default: "
                  "one place)")
      ->transform(cli::size_between(1))
      ->type_name("BYTES");
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench
