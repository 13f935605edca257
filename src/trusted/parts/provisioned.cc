#include "leat/trusted/provisioned.h"

#include <fstream>
#include <memory>

#include "leat/attest/isolated_kernel.h"
#include "leat/error.h"
#include "trusted/parts/messages.h"

namespace leat::trusted {
namespace {

constexpr std::size_t kKeyDigits = 64;

// The first word of the file. Never empty, because that would stand for any key.
std::string read_key(const std::string& path, std::uint64_t epoch) {
  std::ifstream file(path);
  std::string key;
  key.reserve(kKeyDigits);
  for (char next = 0; key.size() <= kKeyDigits && file.get(next) && next != '\n';) key += next;
  if (!file.is_open())
    throw Error(ErrorCode::kUnavailable,
                "epoch " + std::to_string(epoch) + " has not been provisioned: no file " + path,
                "Provision it: docs/trusted_systems.md.");
  if (key.size() != kKeyDigits)
    throw Error(ErrorCode::kInvalidArgument, path + " has no public key of a leat-attestd",
                "Put there what leat-provision vendor run prints, 64 hexadecimal digits.");
  return key;
}

}  // namespace

KernelFactory provisioned_kernels(const ProvisionedKernels& kernels) {
  return [kernels](const Configuration& configuration) -> std::unique_ptr<AttestationKernel> {
    const std::string folder = kernels.folder + "/" + std::to_string(configuration.epoch);
    const std::string key = read_key(folder + "/key", configuration.epoch);
    auto kernel =
        std::make_unique<IsolatedKernel>(folder + "/socket", kernels.spin, kernels.user, key);
    if (kernel->device() != kernels.self || kernel->epoch() != configuration.epoch)
      throw Error(ErrorCode::kInvalidArgument,
                  "the leat-attestd at " + folder + "/socket is of device " +
                      std::to_string(kernel->device()) + " and epoch " +
                      std::to_string(kernel->epoch()) + ", not of device " +
                      std::to_string(kernels.self) + " and epoch " +
                      std::to_string(configuration.epoch));
    detail::check_sessions("device " + std::to_string(kernels.self), *kernel, kernels.first_session,
                           configuration.nodes);
    return kernel;
  };
}

}  // namespace leat::trusted
