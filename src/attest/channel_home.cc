// The two homes of connections' kernels.
#include <cstring>
#include <utility>
#include <vector>

#include "attest/channel_session.h"
#include "base/fork.h"
#include "base/key_file.h"
#include "base/wire.h"
#include "leat/attest/isolated_kernel.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

// The file's key, wiped when it goes.
struct FileKey {
  explicit FileKey(const std::string& path)
      : bytes(leat::detail::read_key_file({"attest_key_file", path, kMinKeyBytes, kMaxKeyBytes})) {}
  FileKey(const FileKey&) = delete;
  FileKey& operator=(const FileKey&) = delete;
  ~FileKey() { explicit_bzero(bytes.data(), bytes.size()); }

  std::vector<unsigned char> bytes;
};

class LocalChannelHome final : public ChannelHome {
 public:
  LocalChannelHome(const std::string& key_file, Algorithm algorithm)
      : key_file_(key_file), algorithm_(algorithm) {
    if (key_file.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "transports attested+... need the setting attest_key_file",
                  "Make a key with: (umask 077; openssl rand -hex 32 >FILE), the same on both "
                  "sides. Or let leat-attestd have it, and set attest_kernel.");
    const FileKey tried(key_file);  // to fail before the peer waits
  }

  const Nonce& nonce() const override { return nonce_; }
  Attestor begin(std::span<const std::byte, kNonceBytes> theirs, bool active) override {
    // Two processes with one random number could have one key, with the same counters.
    if (!made_here_)
      throw Error(
          ErrorCode::kClosed,
          "an attested connection that belongs to the process that this one was forked from "
          "gets no key",
          "Connect after fork().");
    const FileKey file(key_file_);
    return {make_channel_kernel(std::as_bytes(std::span(file.bytes)), algorithm_, nonce_, theirs,
                                active)};
  }
  std::size_t max_payload_bytes() const override { return kMaxPayloadBytes; }
  std::string_view describe() const override { return ""; }

 private:
  const std::string key_file_;
  const Algorithm algorithm_;
  const leat::detail::MadeHere made_here_;
  const Nonce nonce_ = fresh_nonce();
};

}  // namespace

class IsolatedChannelHome final : public ChannelHome {
 public:
  IsolatedChannelHome(const ExpectedDaemon& daemon, std::uint32_t session, Algorithm algorithm,
                      std::chrono::microseconds spin)
      : connection_(std::make_unique<KernelConnection>(daemon, spin)) {
    Reply reply;
    const Verdict verdict =
        connection_->ask({.operation = static_cast<std::uint8_t>(Operation::kOpen),
                          .algorithm = static_cast<std::uint8_t>(algorithm),
                          .session = session},
                         {}, reply);
    if (verdict == Verdict::kSession)
      throw Error(ErrorCode::kUnavailable,
                  "leat-attestd at " + daemon.path +
                      (session == 0 ? " has no key file"
                                    : " has no pair session " + std::to_string(session) +
                                          " for this user and algorithm"),
                  "Set attest_session to one that it was provisioned with, or 0 for its key file.");
    if (verdict != Verdict::kOk)
      throw Error(ErrorCode::kUnavailable,
                  "leat-attestd at " + daemon.path +
                      " opens no session: " + std::string(trusted::to_string(verdict)));
    leat::detail::WireReader reader(reply.data);
    kernel_ = reader.number<std::uint32_t>();
    std::ranges::copy(reader.bytes(kNonceBytes), nonce_.begin());
  }

  const Nonce& nonce() const override { return nonce_; }
  Attestor begin(std::span<const std::byte, kNonceBytes> theirs, bool active) override {
    Reply reply;
    const Verdict verdict =
        connection_->ask({.operation = static_cast<std::uint8_t>(Operation::kBegin),
                          .kernel = kernel_,
                          .active = active},
                         theirs, reply);
    if (verdict == Verdict::kDuplicate)
      throw Error(ErrorCode::kAuthentication, "the peer sent our own random number back");
    if (verdict != Verdict::kOk)
      throw Error(ErrorCode::kUnavailable,
                  "leat-attestd begins no session: " + std::string(trusted::to_string(verdict)));
    std::unique_ptr<IsolatedKernel> kernel(
        new IsolatedKernel(std::move(connection_), kernel_, channel_device(active), kChannelEpoch));
    IsolatedKernel* const isolated = kernel.get();
    return {std::move(kernel), isolated};
  }
  std::size_t max_payload_bytes() const override {
    return connection_->welcome().shape.max_payload_bytes;
  }
  std::string_view describe() const override { return " in leat-attestd"; }

 private:
  std::unique_ptr<KernelConnection> connection_;
  std::uint32_t kernel_ = 0;
  Nonce nonce_{};
};

std::unique_ptr<ChannelHome> make_local_home(const std::string& key_file, Algorithm algorithm) {
  return std::make_unique<LocalChannelHome>(key_file, algorithm);
}

std::unique_ptr<ChannelHome> make_isolated_home(const ExpectedDaemon& daemon, std::uint32_t session,
                                                Algorithm algorithm,
                                                std::chrono::microseconds spin) {
  return std::make_unique<IsolatedChannelHome>(daemon, session, algorithm, spin);
}

}  // namespace leat::trusted::detail
