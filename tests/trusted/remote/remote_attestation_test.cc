// What vendor and controller refuse, message by message. R numbers are those of
// docs/remote_attestation.md.
#include <gtest/gtest.h>
#include <openssl/objects.h>
#include <openssl/x509.h>

#include <optional>
#include <utility>

#include "support/remote_parties.h"

namespace leat::trusted::remote {
namespace {

constexpr Bind kChannel{};

class RemoteAttestation : public testing::Test {
 protected:
  VendorSession vendor_for(Secrets secrets) {
    return {policy_, std::move(secrets), parties_.image()};
  }
  VendorSession vendor_for(std::uint32_t device = 1) {
    return vendor_for(parties_.secrets(device));
  }

  // A vendor that has asked device 1, and the answer of the boot.
  Bytes answer_of(VendorSession& vendor, const Boot& boot) {
    ControllerSide controller(parties_, clone(boot));
    return controller.session->answer(vendor.challenge(parties_.now));
  }
  static Boot clone(const Boot& boot) {
    Boot copy{boot.device, boot.firmware, {}, boot.device_certificate, boot.boot_certificate};
    EVP_PKEY_up_ref(boot.controller_key.get());
    copy.controller_key.reset(boot.controller_key.get());
    return copy;
  }
  // EXPECTs that a vendor of device 1 refuses the answer of the boot.
  void expect_answer_refused(Refusal refusal, const Boot& boot) {
    VendorSession vendor = vendor_for();
    const Bytes answer = answer_of(vendor, boot);
    expect_refused(refusal, [&] { vendor.accept_quote(answer, parties_.now); });
    expect_refused(Refusal::kOrder, [&] { vendor.accept_bind(encode(kChannel), kChannel); });
  }
  // A boot of device 1 whose boot certificate was changed and signed again with the hardware key.
  Boot boot_with(const std::function<void(X509*)>& change) {
    Boot boot = parties_.boot(device_, parties_.firmware());
    const CertificateHandle certificate =
        parse_certificate(boot.boot_certificate, Refusal::kBootSignature);
    const CertificateHandle changed(X509_dup(certificate.get()));
    change(changed.get());
    EXPECT_GT(X509_sign(changed.get(), hardware_key(device_.secret).get(), nullptr), 0);
    boot.boot_certificate = to_der(*changed);
    return boot;
  }
  // Up to SECRETS, which the controller has not seen.
  void bring_to_secrets(VendorSession& vendor, ControllerSide& controller) {
    vendor.accept_quote(controller.session->answer(vendor.challenge(parties_.now)), parties_.now);
    vendor.accept_bind(encode(kChannel), kChannel);
    controller.session->accept_bind(encode(kChannel), kChannel);
    controller.session->accept_image(vendor.image());
  }

  Parties parties_;
  VendorPolicy policy_ = parties_.policy();
  Parties::Device device_ = parties_.make_device(1);
};

int claims_place(X509* certificate) {
  ASN1_OBJECT* object = OBJ_txt2obj(kBootClaimsOid, 1);
  const int place = X509_get_ext_by_OBJ(certificate, object, -1);
  ASN1_OBJECT_free(object);
  return place;
}

TEST_F(RemoteAttestation, ProvisionsAndEnables) {
  ControllerSide controller(parties_);
  VendorSession vendor = vendor_for();
  const Pin pin =
      vendor.accept_quote(controller.session->answer(vendor.challenge(parties_.now)), parties_.now);
  EXPECT_EQ(pin, pin_of(*controller.boot.controller_key));
  EXPECT_EQ(vendor.claims().measurement, measurement_of(parties_.firmware()));
  vendor.accept_bind(encode(kChannel), kChannel);
  controller.session->accept_bind(encode(kChannel), kChannel);
  controller.session->accept_image(vendor.image());
  vendor.accept_done(controller.session->accept_secrets(vendor.secrets()));
  EXPECT_TRUE(vendor.done());
  ASSERT_EQ(controller.kernel.sessions.size(), 2U);
  EXPECT_EQ(controller.kernel.sessions[0].key, parties_.secrets(1).sessions[0].key);
  EXPECT_EQ(controller.saved.last_epoch, 1U);
  EXPECT_TRUE(controller.kernel.members.empty());
  vendor.accept_enabled(controller.session->accept_enable(vendor.enable({1, 2})));
  EXPECT_TRUE(vendor.enabled());
  EXPECT_EQ(controller.kernel.members, (std::vector<std::uint32_t>{1, 2}));
}

TEST_F(RemoteAttestation, R1_WrongOldOrReusedNonce) {
  const Boot boot = parties_.boot(device_, parties_.firmware());
  VendorSession first = vendor_for();
  const Bytes answer = answer_of(first, boot);

  VendorSession other = vendor_for();
  other.challenge(parties_.now);
  expect_refused(Refusal::kNonce, [&] { other.accept_quote(answer, parties_.now); });

  VendorSession late = vendor_for();
  const Bytes late_answer = answer_of(late, boot);
  expect_refused(Refusal::kNonce, [&] {
    late.accept_quote(late_answer, parties_.now + kNonceLifetime.count() + 1);
  });

  first.accept_quote(answer, parties_.now);
  expect_refused(Refusal::kOrder, [&] { first.accept_quote(answer, parties_.now); });

  // The nonce of the challenge, put into an old quote: the signature covers the old nonce.
  VendorSession patched = vendor_for();
  Quote quote = parse_quote(answer);
  quote.nonce = parse_challenge(patched.challenge(parties_.now)).nonce;
  expect_refused(Refusal::kQuoteSignature,
                 [&] { patched.accept_quote(encode(quote), parties_.now); });
}

TEST_F(RemoteAttestation, R2_CertificateOfAnotherBoot) {
  Boot boot = parties_.boot(device_, parties_.firmware());
  boot.boot_certificate = parties_.boot(device_, parties_.firmware()).boot_certificate;
  expect_answer_refused(Refusal::kQuoteSignature, boot);
}

TEST_F(RemoteAttestation, R3_BootCertificateOfAForeignHardwareKey) {
  Boot boot = parties_.boot(device_, parties_.firmware());
  Parties::Device impostor{SecretBytes(32), {}};
  fill_random(impostor.secret);
  impostor.certificate.reset(X509_dup(device_.certificate.get()));
  const BootClaims claims{measurement_of(boot.firmware), 1, 1, {}};
  boot.boot_certificate = to_der(*issue_boot(*hardware_key(impostor.secret), *impostor.certificate,
                                             *boot.controller_key, claims, parties_.now));
  expect_answer_refused(Refusal::kBootSignature, boot);
}

TEST_F(RemoteAttestation, R4_DeviceCertificateUnknownSelfSignedExpiredOrRevoked) {
  Parties stranger;  // another manufacturer, of the same name
  Boot boot = parties_.boot(device_, parties_.firmware());
  boot.device_certificate =
      to_der(*issue_device(stranger.manufacturer, 1, *hardware_key(device_.secret), parties_.now));
  expect_answer_refused(Refusal::kDeviceChain, boot);

  const KeyHandle own = hardware_key(device_.secret);
  boot.device_certificate = to_der(*make_key_carrier(*own, parties_.now));
  expect_answer_refused(Refusal::kDeviceChain, boot);

  const std::time_t long_ago = parties_.now - std::time_t{11} * 365 * 24 * 3600;
  boot.device_certificate = to_der(*issue_device(parties_.manufacturer, 1, *own, long_ago));
  expect_answer_refused(Refusal::kDeviceChain, boot);

  boot.device_certificate = to_der(*device_.certificate);
  policy_.revocations =
      make_revocation_list(parties_.manufacturer, {device_.certificate.get()}, parties_.now);
  expect_answer_refused(Refusal::kDeviceChain, boot);
  policy_.revocations = make_revocation_list(parties_.manufacturer, {}, parties_.now);
  VendorSession vendor = vendor_for();
  EXPECT_NO_THROW(vendor.accept_quote(answer_of(vendor, boot), parties_.now));

  // An expired list does not count: an attacker that holds newer ones back must not win.
  policy_.revocations = make_revocation_list(parties_.manufacturer, {}, long_ago);
  expect_answer_refused(Refusal::kDeviceChain, boot);
}

TEST_F(RemoteAttestation, R5_AnotherGenuineDevice) {
  const Boot other = parties_.boot(2);
  VendorSession vendor = vendor_for(1);
  Challenge challenge = parse_challenge(vendor.challenge(parties_.now));
  challenge.device = 2;
  ControllerSide controller(parties_, clone(other));
  const Bytes answer = controller.session->answer(encode(challenge));
  expect_refused(Refusal::kDevice, [&] { vendor.accept_quote(answer, parties_.now); });

  ControllerSide asked_wrongly(parties_, clone(other));
  challenge.device = 1;
  expect_refused(Refusal::kDevice, [&] { asked_wrongly.session->answer(encode(challenge)); });
}

TEST_F(RemoteAttestation, R6_MeasurementThatIsNotAllowed) {
  Boot boot = parties_.boot(device_, parties_.firmware());
  policy_.measurements = {measurement_of({1, pin_of(*parties_.vendor), Digest{}})};
  expect_answer_refused(Refusal::kMeasurement, boot);
}

TEST_F(RemoteAttestation, R7_ControllerOfAnotherVendor) {
  const KeyHandle other = make_key();
  Firmware firmware = parties_.firmware();
  firmware.vendor = pin_of(*other);
  const Boot boot = parties_.boot(device_, firmware);
  VendorSession vendor = vendor_for();
  const Challenge challenge = parse_challenge(vendor.challenge(parties_.now));
  DeviceRecord record;
  RememberingKernel kernel(Digest{});
  ControllerSession controller(
      boot, *other, record, [](const DeviceRecord&) {}, kernel);
  const Bytes answer = controller.answer(encode(challenge));
  expect_refused(Refusal::kMeasurement, [&] { vendor.accept_quote(answer, parties_.now); });
  EXPECT_THROW(ControllerSession(boot, *parties_.vendor, record, nullptr, kernel), Error);
}

TEST_F(RemoteAttestation, R8_FirmwareRollback) {
  policy_.least_firmware = 2;
  expect_answer_refused(Refusal::kFirmware, parties_.boot(device_, parties_.firmware(1)));

  const Bytes old = seal_firmware(device_.secret, 1, parties_.firmware(1));
  const Bytes certificate = to_der(*device_.certificate);
  const auto load = [&](const Bytes& firmware, std::uint32_t least) {
    return boot_device(device_.secret, certificate, firmware, least, parties_.program_path(),
                       parties_.now);
  };
  EXPECT_EQ(load(old, 1).firmware.version, 1U);
  EXPECT_THROW(load(old, 2), Error) << "the loader remembers version 2";
  Bytes renumbered = old;
  renumbered[0] = std::byte{2};
  EXPECT_THROW(load(renumbered, 2), Error) << "the number in clear is sealed too";
  EXPECT_THROW(load(seal_firmware(device_.secret, 2, parties_.firmware(1)), 0), Error)
      << "firmware for another device";
  Firmware other_program = parties_.firmware(1);
  other_program.program = Digest{};
  EXPECT_THROW(load(seal_firmware(device_.secret, 1, other_program), 0), Error);
}

TEST_F(RemoteAttestation, R9_MeasurementExtensionMissingDuplicatedOptionalOrTooLong) {
  expect_answer_refused(
      Refusal::kMeasurement, boot_with([](X509* certificate) {
        X509_EXTENSION_free(X509_delete_ext(certificate, claims_place(certificate)));
      }));
  expect_answer_refused(Refusal::kMeasurement, boot_with([](X509* certificate) {
                          X509_EXTENSION* twin = X509_EXTENSION_dup(
                              X509_get_ext(certificate, claims_place(certificate)));
                          X509_add_ext(certificate, twin, -1);
                          X509_EXTENSION_free(twin);
                        }));
  expect_answer_refused(Refusal::kMeasurement, boot_with([](X509* certificate) {
                          X509_EXTENSION_set_critical(
                              X509_get_ext(certificate, claims_place(certificate)), 0);
                        }));
  expect_answer_refused(
      Refusal::kMeasurement, boot_with([](X509* certificate) {
        X509_EXTENSION* extension = X509_get_ext(certificate, claims_place(certificate));
        ASN1_OCTET_STRING* data = ASN1_OCTET_STRING_dup(X509_EXTENSION_get_data(extension));
        std::vector<unsigned char> longer(ASN1_STRING_get0_data(data),
                                          ASN1_STRING_get0_data(data) + ASN1_STRING_length(data));
        longer.push_back(0);
        ASN1_OCTET_STRING_set(data, longer.data(), static_cast<int>(longer.size()));
        X509_EXTENSION_set_data(extension, data);
        ASN1_OCTET_STRING_free(data);
      }));
}

TEST_F(RemoteAttestation, R10_QuoteSignedWithAnotherControllerKey) {
  Boot boot = parties_.boot(device_, parties_.firmware());
  boot.controller_key = make_key();
  expect_answer_refused(Refusal::kQuoteSignature, boot);
}

TEST_F(RemoteAttestation, R15_OtherChannel) {
  Bind other{};
  other.exported[0] = std::byte{1};
  ControllerSide controller(parties_);
  VendorSession vendor = vendor_for();
  vendor.accept_quote(controller.session->answer(vendor.challenge(parties_.now)), parties_.now);
  expect_refused(Refusal::kChannel, [&] { vendor.accept_bind(encode(other), kChannel); });
  expect_refused(Refusal::kOrder, [&] { vendor.secrets(); });
  expect_refused(Refusal::kChannel,
                 [&] { controller.session->accept_bind(encode(other), kChannel); });
  EXPECT_FALSE(controller.session->authenticated());
}

TEST_F(RemoteAttestation, R16_ImageWithWrongHashSignatureOrVersion) {
  const auto controller_refuses = [&](const Image& image, std::uint32_t least, bool at_secrets) {
    ControllerSide controller(parties_);
    controller.record.least_image = least;
    VendorSession vendor(policy_, parties_.secrets(1), image);
    vendor.accept_quote(controller.session->answer(vendor.challenge(parties_.now)), parties_.now);
    vendor.accept_bind(encode(kChannel), kChannel);
    controller.session->accept_bind(encode(kChannel), kChannel);
    const Bytes body = vendor.image();
    if (at_secrets) controller.session->accept_image(body);
    expect_refused(Refusal::kImage, [&] {
      if (at_secrets) {
        controller.session->accept_secrets(vendor.secrets());
      } else {
        controller.session->accept_image(body);
      }
    });
    EXPECT_EQ(controller.kernel.provisioned, 0);
  };
  Image image = parties_.image();
  image.version = 2;  // the signature was over version 1
  controller_refuses(image, 0, false);
  controller_refuses(parties_.image(1), 2, false);
  Image other_program{7, 1, sha384(as_bytes("another program")), {}};
  other_program.signature = sign(*parties_.vendor, signed_part(other_program));
  controller_refuses(other_program, 0, true);
}

TEST_F(RemoteAttestation, R17_SecretsForAnotherDevice) {
  ControllerSide controller(parties_, 1);
  VendorSession vendor = vendor_for(1);
  bring_to_secrets(vendor, controller);
  expect_refused(Refusal::kDevice,
                 [&] { controller.session->accept_secrets(encode(parties_.secrets(2))); });
  EXPECT_EQ(controller.kernel.provisioned, 0);
}

TEST_F(RemoteAttestation, R18_EpochThatWasUsed) {
  for (const std::uint64_t last : {1, 5}) {
    ControllerSide controller(parties_);
    controller.record.last_epoch = last;
    VendorSession vendor = vendor_for(parties_.secrets(1, 1));
    bring_to_secrets(vendor, controller);
    expect_refused(Refusal::kEpoch, [&] { controller.session->accept_secrets(vendor.secrets()); });
    EXPECT_EQ(controller.kernel.provisioned, 0);
  }
}

TEST_F(RemoteAttestation, R18_EpochIsSpentBeforeTheKernelGetsKeys) {
  class FailingKernel final : public KernelHome {
    Digest start(const Digest&) override { throw Refused(Refusal::kKernel, "cannot be started"); }
    void provision(const Secrets&) override { ADD_FAILURE(); }
    void enable(const Enable&) override { ADD_FAILURE(); }
  } kernel;
  ControllerSide side(parties_);
  side.session.emplace(
      side.boot, side.vendor_key, side.record,
      [&](const DeviceRecord& record) { side.saved = record; }, kernel);
  VendorSession vendor = vendor_for();
  bring_to_secrets(vendor, side);
  expect_refused(Refusal::kKernel, [&] { side.session->accept_secrets(vendor.secrets()); });
  EXPECT_EQ(side.saved.last_epoch, 1U);
}

TEST_F(RemoteAttestation, R19_SessionsAndKeysThatContradict) {
  const auto refused = [&](const std::function<void(Secrets&)>& change) {
    Secrets secrets = parties_.secrets(1);
    change(secrets);
    expect_refused(Refusal::kSessions, [&] { parse_secrets(encode(secrets)); });
    expect_refused(Refusal::kSessions, [&] { vendor_for(secrets); });
  };
  refused([](Secrets& s) { s.sessions[1].id = 1; });
  refused([](Secrets& s) { s.sessions[0].id = 3; });
  refused([](Secrets& s) { s.sessions[1].key = s.sessions[0].key; });
  refused([](Secrets& s) { s.sessions[0].key.resize(31); });
  refused([](Secrets& s) { s.sessions[0].id = 0; });
  refused([](Secrets& s) { s.sessions[0].algorithm = 9; });
  refused([](Secrets& s) { s.sessions[1].streams = 2; });
  refused([](Secrets& s) { s.sessions[0].receivers = {}; });
  refused([](Secrets& s) { s.sessions[0].receivers = {2, 3}; });
  refused([](Secrets& s) { s.sessions[1].receivers = {2, 2}; });
  refused([](Secrets& s) { s.sessions[1].receivers = {1, 2}; });
  refused([](Secrets& s) { s.sessions[0].sender = 3; });
  refused([](Secrets& s) { s.sessions.clear(); });
}

TEST_F(RemoteAttestation, R20_DoneMissingTruncatedOrOfSomethingElse) {
  const auto refused = [&](Refusal refusal, const std::function<void(Bytes&)>& change) {
    ControllerSide controller(parties_);
    VendorSession vendor = vendor_for();
    bring_to_secrets(vendor, controller);
    Bytes done = controller.session->accept_secrets(vendor.secrets());
    change(done);
    expect_refused(refusal, [&] { vendor.accept_done(done); });
    EXPECT_FALSE(vendor.done());
    expect_refused(Refusal::kOrder, [&] { vendor.enable({1, 2}); });
  };
  refused(Refusal::kMalformed, [](Bytes& done) { done.clear(); });
  refused(Refusal::kMalformed, [](Bytes& done) { done.pop_back(); });
  for (const std::size_t place : {0, 32, 40, 88, 136})
    refused(Refusal::kDone, [&](Bytes& done) { done[place] ^= std::byte{1}; });

  ControllerSide controller(parties_);
  VendorSession vendor = vendor_for();
  bring_to_secrets(vendor, controller);
  vendor.secrets();
  expect_refused(Refusal::kOrder, [&] { vendor.enable({1, 2}); });
}

TEST_F(RemoteAttestation, R21_MessagesOutOfOrder) {
  const Bytes image = encode(parties_.image());
  const SecretBytes secrets = encode(parties_.secrets(1));
  const auto at_once = [&](const std::function<void(ControllerSession&)>& call) {
    ControllerSide controller(parties_);
    expect_refused(Refusal::kOrder, [&] { call(*controller.session); });
    EXPECT_EQ(controller.kernel.provisioned, 0);
  };
  at_once([&](ControllerSession& session) { session.accept_bind(encode(kChannel), kChannel); });
  at_once([&](ControllerSession& session) { session.accept_image(image); });
  at_once([&](ControllerSession& session) { session.accept_secrets(secrets); });
  at_once([&](ControllerSession& session) { session.accept_enable(encode(Enable{1, {1, 2}})); });

  // Twice the same, also after a full run.
  ControllerSide controller(parties_);
  VendorSession vendor = vendor_for();
  bring_to_secrets(vendor, controller);
  controller.session->accept_secrets(vendor.secrets());
  expect_refused(Refusal::kOrder, [&] { controller.session->accept_secrets(secrets); });
  EXPECT_EQ(controller.kernel.provisioned, 1);
  expect_refused(Refusal::kOrder, [&] {
    controller.session->accept_enable(encode(Enable{1, {1, 2}}));
  });
  EXPECT_TRUE(controller.kernel.members.empty());
}

TEST_F(RemoteAttestation, R24_EnableNeedsEveryMemberOfTheSessions) {
  for (const Enable& wrong : {Enable{1, {1}}, Enable{1, {1, 3}}, Enable{2, {1, 2}}}) {
    ControllerSide controller(parties_);
    VendorSession vendor = vendor_for();
    bring_to_secrets(vendor, controller);
    vendor.accept_done(controller.session->accept_secrets(vendor.secrets()));
    expect_refused(Refusal::kMembers, [&] { controller.session->accept_enable(encode(wrong)); });
    EXPECT_TRUE(controller.kernel.members.empty());
  }
}

}  // namespace
}  // namespace leat::trusted::remote
