// A connection's session in a leat-attestd, without the connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attest/channel_session.h"
#include "attestd/daemon.h"
#include "leat/attest/attestation.h"

namespace leat::attestd {

// A session of a connection as a client has it, with the peer's side in this process.
struct Session {
  explicit Session(const Daemon& daemon,
                   trusted::Algorithm algorithm = trusted::Algorithm::kHmacSha256)
      : isolated(trusted::detail::make_isolated_home({daemon.path()}, 0, algorithm,
                                                     std::chrono::microseconds(50)),
                 algorithm, true),
        local(trusted::detail::make_local_home(daemon.key_file(), algorithm), algorithm, false) {
    isolated.begin(local.offer());
    local.begin(isolated.offer());
  }
  // One message to and fro.
  trusted::Verdict exchange() {
    const std::string payload = "payload";
    const auto bytes = std::as_bytes(std::span(payload));
    for (auto [from, to] : {std::pair{&isolated, &local}, std::pair{&local, &isolated}}) {
      trusted::Proof proof;
      const trusted::Verdict attested =
          from->kernel().attest({.session = from->id()}, bytes, proof);
      if (attested != trusted::Verdict::kOk) return attested;
      std::vector<std::byte> record(proof.header.begin(), proof.header.end());
      record.insert(record.end(), bytes.begin(), bytes.end());
      record.insert(record.end(), proof.mac.begin(), proof.mac.end());
      const trusted::Verdict verified = to->kernel().verify(record, trusted::Kind::kSend);
      if (verified != trusted::Verdict::kOk) return verified;
    }
    return trusted::Verdict::kOk;
  }

  trusted::detail::ChannelSession isolated, local;
};

}  // namespace leat::attestd
