// Remote attestation: bodies of messages and certificates from anyone who can reach the port. The
// first byte says what the rest is taken for: the number of a message, 'F' for a frame's head,
// 'C' for a certificate, 'P' for a plan.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "fuzz/property.h"
#include "trusted/remote/certificates.h"
#include "trusted/remote/messages.h"
#include "trusted/remote/plan.h"

namespace {

using namespace leat::trusted::remote;

template <typename Bytes>
void same_again(const Bytes& bytes, View body) {
  leat::detail::require(std::equal(bytes.begin(), bytes.end(), body.begin(), body.end()),
                        "a message that is accepted says everything it carries");
}

void parse(Type type, View body) {
  switch (type) {
    case Type::kChallenge:
      return same_again(encode(parse_challenge(body)), body);
    case Type::kQuote:
      return same_again(encode(parse_quote(body)), body);
    case Type::kBind:
      return same_again(encode(parse_bind(body)), body);
    case Type::kImage:
      return same_again(encode(parse_image(body)), body);
    case Type::kSecrets:
      return same_again(encode(parse_secrets(body)), body);
    case Type::kReady:
      return same_again(encode(parse_ready(body)), body);
    case Type::kDone:
      return same_again(encode(parse_done(body)), body);
    case Type::kEnable:
      return same_again(encode(parse_enable(body)), body);
    case Type::kEnabled:
      return same_again(encode(parse_enabled(body)), body);
    case Type::kRefused:
      return same_again(encode(parse_refused(body)), body);
  }
}

// All that a vendor does with a certificate, also what it does only after a signature was right.
void check(View der) {
  static const Authority authority = make_authority("fuzz", 1'700'000'000);
  static const RevocationHandle revocations = make_revocation_list(authority, {}, 1'700'000'000);
  const CertificateHandle certificate = parse_certificate(der, Refusal::kDeviceChain);
  same_again(to_der(*certificate), der);
  const DeviceIdentity device{1, KeyHandle(X509_get_pubkey(certificate.get()))};
  const std::function<void()> readers[] = {
      [&] { read_claims(*certificate); }, [&] { device_number(*certificate); },
      [&] { check_boot_certificate(*certificate, *certificate, device, 1'700'000'000); },
      [&] {
        check_device_certificate(*certificate, *authority.certificate, *revocations, 1'700'000'000);
      }};
  for (const auto& read : readers) {
    try {
      read();
    } catch (const Refused&) {
      // As nearly always.
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const View body = std::as_bytes(std::span(data + 1, size - 1));
  try {
    if (data[0] == 'F') {
      const FrameHeader header = parse_frame_header(body);
      leat::detail::require(header.body_bytes <= max_body_bytes(header.type),
                            "no frame makes its reader take more memory than its type needs");
    } else if (data[0] == 'C') {
      check(body);
    } else if (data[0] == 'P') {
      parse_plan({reinterpret_cast<const char*>(body.data()), body.size()}, "plan");
    } else {
      parse(static_cast<Type>(data[0]), body);
    }
  } catch (const leat::Error& error) {
    leat::detail::require(error.what()[0] != '\0', "an error says what is wrong");
  }
  return 0;
}
