// Attested append-only memory: appends, lookups, verified lookups.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "leat/trusted/a2m.h"
#include "leat/trusted/a2m_verifier.h"
#include "machine.h"
#include "measure.h"
#include "steps_bar.h"
#include "trusted/a2m/file.h"
#include "trusted/kernel_homes.h"
#include "trusted/trusted.h"

namespace leat::bench {
namespace {

using namespace leat::trusted;

constexpr std::uint32_t kManifest = 1, kLog = 2;
constexpr std::size_t kContextBytes = 64;
constexpr std::uint64_t kTimed = 200'000;  // appends of which each is timed
constexpr std::uint64_t kVerified = 200'000;

// A log of an earlier run cannot go on: its keys went with that run.
void check_is_new(const std::string& folder) {
  if (folder.empty()) return;
  for (const std::uint32_t session : {kManifest, kLog}) {
    const std::string path = trusted::detail::path_of_log(folder, session);
    if (std::filesystem::exists(path))
      throw std::runtime_error("--folder " + folder + " has a log already: " + path +
                               ". Name a folder without one, or remove it.");
  }
}

// TNIC, ASPLOS 2025, table 3: million operations per second, with 100 million entries of 100 bytes.
// Its lookups copy 16 bytes of an entry; only those of SGX-lib are inside the enclave.
struct PublishedLog {
  const char* name;
  double appends;
  double append_us;
  double lookups;
};
constexpr PublishedLog kPublishedLogs[] = {{"SSL-lib", 0.790, 1.26, 256},
                                           {"SGX-lib", 0.380, 2.6, 3.8},
                                           {"AMD-sev", 0.030, 32.37, 263},
                                           {"TNIC", 0.158, 6.34, 257}};

// Operations a second, of a hundred parts: the average, and what a tenth of the parts kept to. On a
// quiet machine the two are close; the second stays when something else takes the processor.
struct Rate {
  double average = 0;
  double undisturbed = 0;
};

template <typename Operation>
Rate measure_rate(std::uint64_t count, const TickClock& clock, StepsBar& bar,
                  Operation&& operation) {
  constexpr std::uint64_t kParts = 100;
  std::vector<double> rates;
  double seconds = 0;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    const std::uint64_t first = count * part / kParts;
    const std::uint64_t last = count * (part + 1) / kParts;
    const std::uint64_t start = clock.now();
    for (std::uint64_t i = first; i < last; ++i) operation(i);
    const double took = clock.microseconds(clock.now() - start) * 1e-6;
    seconds += took;
    rates.push_back(static_cast<double>(last - first) / took);
    bar.update(static_cast<double>(part + 1) / kParts);
  }
  std::ranges::sort(rates, std::greater<>());
  return {static_cast<double>(count) / seconds, rates[kParts / 10]};
}

void print_row(const char* name, const Rate& rate) {
  std::printf(" %-28s %12.3f %12.3f\n", name, rate.average * 1e-6, rate.undisturbed * 1e-6);
  std::fflush(stdout);
}

}  // namespace

TrustedResult measure_a2m(const TrustedArguments& arguments) {
  const auto cores = choose_cores({});
  std::optional<int> kernel_core;
  if (cores) kernel_core = (*cores)[1];
  const KernelHomes homes(
      arguments.isolated(), 1,
      [](std::uint32_t, const KernelHomes::Take& take) {
        for (const std::uint32_t id : {kManifest, kLog}) {
          const std::vector<std::byte> key(kMinKeyBytes, std::byte(id));
          take({.id = id, .role = Role::kLog, .key = key});
        }
      },
      kernel_core);
  if (cores) pin_to_core((*cores)[0]);
  const auto own_kernel = homes.open(1);
  AttestationKernel& kernel = *own_kernel;
  const std::uint64_t entries = arguments.entries;
  check_is_new(arguments.folder);
  AttestedMemory memory(kernel, {.folder = arguments.folder,
                                 .manifest = kManifest,
                                 .logs = {{.session = kLog,
                                           .max_context_bytes = kContextBytes,
                                           .max_entries = entries + kTimed + 1}}});
  const TickClock clock;
  StepsBar bar("a2m", 4);
  std::vector<std::byte> context(kContextBytes, std::byte{7});

  const Rate appends =
      measure_rate(entries, clock, bar, [&](std::uint64_t) { memory.append(kLog, context); });
  std::vector<double> times(kTimed);
  for (double& time : times) {
    const std::uint64_t start = clock.now();
    memory.append(kLog, context);
    time = clock.microseconds(clock.now() - start);
  }
  const Latency::Distribution latency = distribution_of(std::move(times));
  bar.step_done();

  Record record;
  std::uint64_t sum = 0;
  const auto look_up = [&](std::uint64_t index) {
    if (memory.lookup(kLog, index, record) != LookupStatus::kAssigned)
      throw std::runtime_error("an entry is not there");
    // So that no copy can be left out.
    asm volatile("" : : "r"(record.data()) : "memory");
    sum += record.size();
  };
  const Rate lookups = measure_rate(entries, clock, bar, look_up);
  bar.step_done();
  std::minstd_rand random(1);
  const Rate random_lookups = measure_rate(std::min<std::uint64_t>(entries, 10'000'000), clock, bar,
                                           [&](std::uint64_t) { look_up(random() % entries); });
  bar.step_done();
  const LogBounds bounds = memory.bounds(kLog);
  const Rate verified =
      measure_rate(std::min(entries, kVerified), clock, bar, [&](std::uint64_t i) {
        look_up(i);
        if (verify_lookup(kernel, kLog, i, record, bounds) != Finding::kOk)
          throw std::runtime_error("an entry does not verify");
      });
  bar.step_done();

  TrustedResult result;
  result.results.push_back({{"entries", entries},
                            {"context_bytes", kContextBytes},
                            {"entry_bytes", record.size()},
                            {"where", arguments.folder.empty() ? "memory" : "file"},
                            {"append_per_s", appends.average},
                            {"append_undisturbed_per_s", appends.undisturbed},
                            {"append_us",
                             {{"p50", latency.typical_us},
                              {"p90", latency.p90_us},
                              {"p99", latency.p99_us},
                              {"p999", latency.p999_us},
                              {"max", latency.max_us}}},
                            {"lookup_per_s", lookups.average},
                            {"lookup_undisturbed_per_s", lookups.undisturbed},
                            {"random_lookup_per_s", random_lookups.undisturbed},
                            {"verified_lookup_per_s", verified.undisturbed}});
  result.ratios = {{"a2m_append_per_s", appends.undisturbed},
                   {"a2m_lookup_per_s", lookups.undisturbed},
                   {"a2m_verified_lookup_per_s", verified.undisturbed}};
  if (arguments.json) return result;
  std::printf(
      " Attested append-only memory: %llu entries of %zu bytes, %zu with what attests them\n"
      " million a second                   average  undisturbed\n",
      static_cast<unsigned long long>(entries), kContextBytes, record.size());
  print_row("append", appends);
  print_row("lookup, in order", lookups);
  print_row("lookup, at random", random_lookups);
  print_row("lookup and verify", verified);
  std::printf(
      " append, microseconds: median %.2f, 90 %% %.2f, 99 %% %.2f, 99.9 %% %.2f, most %.1f\n",
      latency.typical_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us);
  std::printf(" published (TNIC, table 3):       append  (mean us)       lookup of 16 bytes\n");
  for (const PublishedLog& system : kPublishedLogs)
    if (arguments.is_like(system.name))
      std::printf(" %-28s %12.3f %10.2f %12.1f\n", system.name, system.appends, system.append_us,
                  system.lookups);
  return result;
}

}  // namespace leat::bench
