// One run of a carrier, in two processes made for it, and what each of them needed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transfer/ends.h"

namespace leat::bench {

// Of one side. Memory beyond the transfer's own bytes.
struct SideUsage {
  double cpu_seconds = 0;             // of the timed transfers, each
  std::int64_t connection_bytes = 0;  // what the idle connection holds
  // What it took in addition, at its peak: the first transfer, and the most of all of them.
  std::int64_t first_bytes = 0;
  std::int64_t most_bytes = 0;
};

struct TransferResult {
  bool complete = false;             // everything arrived, with the right digest
  std::string error;                 // why not
  std::vector<double> seconds;       // of each timed transfer
  std::uint64_t resent_packets = 0;  // in all
  std::uint64_t resumes = 0;
  std::string device;
  SideUsage sender;
  SideUsage receiver;

  double median_seconds() const;
};

struct RunOptions {
  // Transfers over one connection. Of more than one the first two are not timed: memory is new.
  unsigned iterations = 1;
  unsigned limit_seconds = 120;  // for all of them
  std::vector<int> cpus;         // sender, receiver
};

// The process that receives in a run, here or on another host. Its end ends that process.
class ReceiverLink {
 public:
  virtual ~ReceiverLink() = default;
  // What the process told, in its order; no value if it has told nothing more. Throws if it ended.
  virtual std::optional<std::string> try_hear() = 0;
  // Readable when try_hear may have something to say.
  virtual int fd() = 0;
};
using StartReceiver =
    std::function<std::unique_ptr<ReceiverLink>(const TransferCase&, const RunOptions&)>;

// Starts a receiving process here; forks.
std::unique_ptr<ReceiverLink> start_receiver(const TransferCase& transfer,
                                             const RunOptions& options);

// Forks, so call it while there are no threads. A transfer that fails or takes too long is a
// result, not an error, but what `start` throws is thrown.
TransferResult run_transfer(const TransferCase& transfer, const RunOptions& options,
                            const StartReceiver& start = start_receiver);

// The time of memcpy for that many bytes, in memory that was touched before: the best of some.
double memcpy_seconds(std::size_t bytes);

}  // namespace leat::bench
