// The smallest program that a controller can start as its attestation kernel: it takes keys, waits
// for ENABLE, and proves for each session that it has the key. Arguments: "twice" asks for a second
// set of keys, "silent" never answers, "dead" ends at once, "bare" says by its exit code whether it
// has an environment.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>

#include "trusted/remote/kernel_process.h"
#include "trusted/remote/plan.h"

int main(int argc, char** argv) {
  using namespace leat::trusted::remote;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "dead") return 1;
  if (mode == "bare") return environ[0] == nullptr ? 0 : 1;
  if (mode == "silent") std::this_thread::sleep_for(std::chrono::seconds(60));
  try {
    KernelEnd end{leat::detail::Fd(kKernelDescriptor)};
    const auto deadline = leat::detail::deadline_after(std::chrono::minutes(1));
    const Secrets secrets = end.receive_secrets(deadline);
    if (mode == "twice") end.receive_secrets(deadline);
    const Enable enable = end.wait_enable(deadline);
    for (const SessionSecret& session : secrets.sessions) {
      const SecretBytes proof = derive(session.key, "proof of a test", 8);
      std::printf("kernel of device %u: session %u %s ", secrets.device, session.id,
                  std::string(to_string(session.kind)).c_str());
      for (const std::byte byte : proof) std::printf("%02x", std::to_integer<unsigned>(byte));
      std::printf(" of %zu members\n", enable.members.size());
    }
    std::fflush(stdout);
    end.enabled();
    return 0;
  } catch (const leat::Error& error) {
    std::fprintf(stderr, "kernel: %s\n", error.what());
    return 1;
  }
}
