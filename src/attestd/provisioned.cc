#include "attestd/provisioned.h"

#include "base/clock.h"

namespace leat::attestd {

using trusted::remote::SessionKind;
using trusted::remote::SessionSecret;

namespace {

// From the controller's start of this program; as long as it gives all members of a plan.
constexpr std::chrono::minutes kPatience{3};

trusted::Session session_of(const SessionSecret& secret, std::uint32_t device) {
  trusted::Session session{.id = secret.id,
                           .algorithm = static_cast<trusted::Algorithm>(secret.algorithm),
                           .streams = secret.streams,
                           .key = secret.key};
  const bool sends = secret.sender == device;
  switch (secret.kind) {
    case SessionKind::kPair:
      session.role = trusted::Role::kPair;
      session.peer = sends ? secret.receivers.front() : secret.sender;
      break;
    case SessionKind::kGroup:
      session.role = sends ? trusted::Role::kGroupSender : trusted::Role::kGroupReceiver;
      session.peer = sends ? 0 : secret.sender;
      break;
    case SessionKind::kLog:
      session.role = trusted::Role::kLog;
      break;
  }
  return session;
}

}  // namespace

void take_sessions(trusted::remote::KernelEnd& controller, Holdings& holdings) {
  const auto deadline = leat::detail::deadline_after(kPatience);
  {
    const trusted::remote::Secrets secrets = controller.receive_secrets(deadline);
    holdings.begin(secrets.device, secrets.epoch);
    if (!secrets.reply_key.empty()) holdings.take_reply_key(secrets.reply_key);
    for (const SessionSecret& secret : secrets.sessions)
      holdings.provision(session_of(secret, secrets.device));
  }
  controller.wait_enable(deadline);
  holdings.enable();
}

}  // namespace leat::attestd
