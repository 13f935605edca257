// What a vendor wants: devices, their kernel and their sessions, from a JSON file that
// docs/remote_attestation.md describes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trusted/remote/messages.h"

namespace leat::trusted::remote {

struct PlannedDevice {
  std::uint32_t device = 0;
  std::string address;  // of its controller
};

struct Plan {
  std::vector<PlannedDevice> devices;   // by ascending number
  std::vector<SessionSecret> sessions;  // by ascending id, without keys
  std::uint32_t image_id = 0, image_version = 0;
  std::string image_program;  // the path of the kernel's program here, to be measured
};

// Throws leat::Error(kInvalidArgument) that says what is wrong; `name` is what it calls the text.
Plan parse_plan(std::string_view text, const std::string& name);

// Fresh keys for all sessions, and for each device its part: those of its sessions, and a key of
// its own for replies. Throws as parse_secrets does, which they have passed.
std::vector<Secrets> make_secrets(const Plan& plan, std::uint64_t epoch);

std::string_view to_string(SessionKind kind) noexcept;

}  // namespace leat::trusted::remote
