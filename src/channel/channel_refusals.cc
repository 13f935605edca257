// What a channel refuses, and how it reports what ended it.
#include "channel/channel_core.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr const char* kAfterDeath = "See how the peer ended, and connect again.";

// An error that names the peer.
class ToldError : public Error {
 public:
  using Error::Error;
};

const char* advice_after(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerDied:
      return kAfterDeath;
    case ErrorCode::kProtocol:
      return "Its memory or ours was overwritten, or it is not leat: connect again.";
    default:
      return "";
  }
}

}  // namespace

void ChannelCore::rethrow(const char* what, const Error& error) const {
  if (closed()) throw_closed(what);
  if (dynamic_cast<const ToldError*>(&error) != nullptr) throw;  // thrown by a call within another
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTooLarge:
    case ErrorCode::kClosed:
    case ErrorCode::kResource:
      throw;
    default:
      throw ToldError(
          error.code(),
          "the connection with " + connection_.peer_address + " has ended: " + error.what(),
          advice_after(error.code()), error.system_errno());
  }
}

void ChannelCore::throw_gone(const char* what) const {
  if (peer_spoke())
    throw ToldError(ErrorCode::kProtocol, std::string(what) + ": " + where() + ' ' + kPeerSpoke,
                    advice_after(ErrorCode::kProtocol));
  throw ToldError(ErrorCode::kPeerDied, std::string(what) + ": " + where() + " went away",
                  kAfterDeath);
}

void ChannelCore::throw_closed(const char* what) const {
  if (!made_here_)
    throw Error(ErrorCode::kClosed,
                std::string(what) + ": this channel to " + connection_.peer_address +
                    " belongs to the process that this one was forked from",
                "Connect after fork().");
  throw Error(ErrorCode::kClosed,
              std::string(what) + ": this channel to " + where() + " was closed");
}

void ChannelCore::check_usable(const char* what, unsigned context) const {
  if (context >= kContexts)
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + ": " + no_context(context),
                kContextsAre);
  check_open(what);
  if (end_said_)
    throw Error(ErrorCode::kClosed,
                std::string(what) + ": sending to " + where() + " was shut down");
}

void ChannelCore::refuse_second(Side side) const {
  if (closed())
    return;  // the caller reports that; the flag may be of a thread that fork() left behind
  throw Error(ErrorCode::kInvalidArgument,
              std::string("another thread is ") +
                  (side == Side::kSend ? "sending to " : "receiving from ") + where() +
                  " over this channel",
              "One thread may send while another receives; for more, connect once for each.");
}

std::string ChannelCore::where() const {
  return connection_.peer_address + " (" + transport_.describe() + ")";
}

}  // namespace leat::detail
