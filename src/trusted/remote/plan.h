// A vendor's plan: devices, their attestation kernel and their sessions, from a JSON file that
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
  std::string image_program;  // local path of the attestation kernel's program, to be measured
};

// Throws leat::Error(kInvalidArgument), saying what is wrong; `name` denotes the text.
Plan parse_plan(std::string_view text, const std::string& name);

// Makes fresh keys for all sessions. Returns for each device its part: the keys of its sessions,
// and a reply key of its own. The result has passed parse_secrets(), and this throws as that does.
std::vector<Secrets> make_secrets(const Plan& plan, std::uint64_t epoch);

std::string_view to_string(SessionKind kind) noexcept;

}  // namespace leat::trusted::remote
