// The bytes of the handshake's frames: what goes in comes out, and nothing else is accepted.
#include "handshake/hello.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace leat::detail {
namespace {

using Bytes = std::vector<std::byte>;

Hello some_hello() {
  Hello hello;
  hello.host.boot_id.fill(std::byte{0xa5});
  hello.host.user = 0x01020304;
  hello.host.network = 0x1122334455667788;
  hello.nonce.fill(7);
  hello.process.fill(8);
  hello.from = "10.0.0.1:40000";
  hello.to = "10.0.0.2:7000";
  hello.device("shm").use = DeviceUse::kAllowed;
  hello.device("ib") = {DeviceUse::kUnusable, "ib:mlx5_0", "port 1 is down", ""};
  hello.device("tcp").use = DeviceUse::kUsable;
  hello.device_setting = "^ib:mlx5_1";
  hello.transport = "confirm-each";
  hello.fallback = Fallback::kWarn;
  return hello;
}

Answer some_answer() {
  Answer answer;
  answer.nonce.fill(9);
  answer.device = "ib";
  answer.transport = "ring";
  answer.device_name = "ib:rxe0";
  answer.rejected = "shm: other host";
  answer.fallbacks = 1;
  answer.budget_ms = 2500;
  answer.offer = Bytes(kMaxOfferBytes, std::byte{0x42});
  return answer;
}

Result some_result() {
  Result result;
  result.setup = Bytes(100, std::byte{0x24});
  return result;
}

void expect_error(ErrorCode code, const std::string& word, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "accepted; expected: " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
        << "'" << word << "' is not in: " << error.what();
  }
}

TEST(HelloTest, HelloComesBack) {
  const Hello sent = some_hello();
  const Bytes frame = encode(sent);
  EXPECT_EQ(frame.size(), kHelloBytes);
  const Hello got = decode_hello(frame);
  EXPECT_EQ(got.host, sent.host);
  EXPECT_EQ(got.nonce, sent.nonce);
  EXPECT_EQ(got.process, sent.process);
  EXPECT_EQ(got.from, sent.from);
  EXPECT_EQ(got.to, sent.to);
  ASSERT_EQ(got.devices.size(), 3U);
  for (std::size_t i = 0; i < got.devices.size(); ++i) {
    EXPECT_EQ(got.devices[i].kind, sent.devices[i].kind);
    EXPECT_EQ(got.devices[i].state.use, sent.devices[i].state.use);
    EXPECT_EQ(got.devices[i].state.name, sent.devices[i].state.name);
    EXPECT_EQ(got.devices[i].state.why_not, sent.devices[i].state.why_not);
  }
  EXPECT_EQ(got.device_setting, sent.device_setting);
  EXPECT_EQ(got.transport, sent.transport);
  EXPECT_EQ(got.fallback, sent.fallback);
}

TEST(HelloTest, AnswerAndResultComeBack) {
  const Answer answer = decode_answer(encode(some_answer()));
  EXPECT_FALSE(answer.refused);
  EXPECT_EQ(answer.nonce, some_answer().nonce);
  EXPECT_EQ(answer.device, "ib");
  EXPECT_EQ(answer.transport, "ring");
  EXPECT_EQ(answer.device_name, "ib:rxe0");
  EXPECT_EQ(answer.rejected, "shm: other host");
  EXPECT_EQ(answer.fallbacks, 1U);
  EXPECT_EQ(answer.budget_ms, 2500U);
  EXPECT_EQ(answer.offer, some_answer().offer);

  Answer refusal;
  refusal.refused = true;
  refusal.code = ErrorCode::kVersion;
  refusal.text = "too old";
  EXPECT_TRUE(decode_answer(encode(refusal)).refused);
  EXPECT_EQ(decode_answer(encode(refusal)).code, ErrorCode::kVersion);
  EXPECT_EQ(decode_answer(encode(refusal)).text, "too old");

  EXPECT_EQ(decode_result(encode(some_result())).setup, some_result().setup);
  EXPECT_FALSE(decode_result(encode(some_result())).failed);
  const Result failure{true, ErrorCode::kResource, "no memory", {}};
  EXPECT_TRUE(decode_result(encode(failure)).failed);
  EXPECT_EQ(decode_result(encode(failure)).code, ErrorCode::kResource);
  EXPECT_EQ(decode_result(encode(failure)).text, "no memory");
}

// The layout of version 9, written by hand: a change of it must raise kProtocolVersion.
TEST(HelloTest, BytesAreLittleEndianAndInTheirPlaces) {
  const Bytes frame = encode(some_hello());
  const auto at = [&](std::size_t i) { return std::to_integer<int>(frame[i]); };
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()), 4), "leat");
  EXPECT_EQ(at(4), 9);  // version
  EXPECT_EQ(at(5), 0);
  EXPECT_EQ(at(6), 1);  // kind
  EXPECT_EQ(at(8) + 256 * at(9), static_cast<int>(kHelloBytes));
  EXPECT_EQ(at(12), 0xa5);  // boot id
  EXPECT_EQ(at(28), 0x04);  // user
  EXPECT_EQ(at(31), 0x01);
  EXPECT_EQ(at(32), 0x88);  // network namespace
  EXPECT_EQ(at(40), 7);     // nonce
  EXPECT_EQ(at(56), 8);     // process
  EXPECT_EQ(at(72), '1');   // from
  EXPECT_EQ(at(136), '1');  // to
  EXPECT_EQ(at(150), 0);
  EXPECT_EQ(at(200), 's');           // shm:
  EXPECT_EQ(at(200 + 16), 1);        // allowed
  EXPECT_EQ(at(200 + 593), 'i');     // ib:
  EXPECT_EQ(at(200 + 593 + 16), 3);  // unusable
  EXPECT_EQ(kHelloBytes, 5490U);
  EXPECT_EQ(kAnswerBytes, 2456U);
  EXPECT_EQ(kResultBytes, 2064U);
}

TEST(HelloTest, LongTextsAreCutAndOddOnesMadePlain) {
  Hello hello = some_hello();
  hello.device_setting = std::string(5000, 'x');
  hello.transport = std::string(50, 't');
  hello.device("ib").name = std::string(500, 'n');
  hello.device("ib").why_not = "new\nline \xc3\xa4";
  const Hello got = decode_hello(encode(hello));
  EXPECT_EQ(got.device_setting, std::string(kReasonBytes, 'x'));
  EXPECT_EQ(got.transport, std::string(kTransportNameBytes - 1, 't'));
  EXPECT_EQ(got.find_device("ib")->name, std::string(kDeviceNameBytes - 1, 'n'));
  EXPECT_EQ(got.find_device("ib")->why_not, "new?line ??");
}

TEST(HelloTest, BlobsThatAreTooLargeAreTheCallersMistake) {
  Answer answer = some_answer();
  answer.offer.resize(kMaxOfferBytes + 1);
  expect_error(ErrorCode::kInvalidArgument, "256", [&] { encode(answer); });
  Result result;
  result.setup.resize(kMaxSetupBytes + 1);
  expect_error(ErrorCode::kInvalidArgument, "1024", [&] { encode(result); });
}

TEST(HelloTest, EveryCorruptFieldOfAHelloIsNamed) {
  constexpr std::size_t kShm = 200;
  constexpr std::size_t kState = kShm + kDeviceKindBytes;
  constexpr std::size_t kIbKind = kShm + kDeviceBytes;
  constexpr std::size_t kIb = kState + kDeviceBytes;
  constexpr std::size_t kNoDevice = kShm + 3 * kDeviceBytes;
  constexpr std::size_t kSetting = kShm + kMaxDevices * kDeviceBytes;
  const struct {
    std::size_t place;
    int value;
    const char* field;
  } cases[] = {
      {72, '\n', "address"},
      {136 + 20, 'x', "address"},
      {kShm + kDeviceKindBytes - 1, 'x', "device"},
      {kIbKind, 0, "device"},  // zero, then text
      {kState, 4, "device state"},
      {kNoDevice + kDeviceKindBytes, 1, "device after the last one"},
      {kNoDevice + kDeviceBytes, 'x', "device after the last one"},
      {kIb + 1, 0, "device name"},                   // zero, then text
      {kIb + 1, 0xff, "device name"},                // not ASCII
      {kIb + 3, '\n', "device name"},                // not printable
      {kIb + kDeviceNameBytes, 'x', "device name"},  // not ended
      {kIb + 1 + kDeviceNameBytes + 2, 0, "reason"},
      {kSetting, 1, "device setting"},
      {kSetting + kReasonBytes - 1, 'x', "device setting"},
      {kSetting + kReasonBytes, 0, "transport"},
      {kSetting + kReasonBytes + kTransportNameBytes - 1, 'x', "transport"},
      {kHelloBytes - 2, 3, "fallback"},
      {kHelloBytes - 1, 2, "wish for secrecy"},
  };
  for (const auto& item : cases) {
    Bytes frame = encode(some_hello());
    frame[item.place] = static_cast<std::byte>(item.value);
    expect_error(ErrorCode::kProtocol, item.field, [&] { decode_hello(frame); });
  }
  Bytes twice = encode(some_hello());
  std::copy_n(twice.begin() + kShm, kDeviceBytes, twice.begin() + kIbKind);
  expect_error(ErrorCode::kProtocol, "twice", [&] { decode_hello(twice); });
  Hello nameless = some_hello();
  nameless.transport = "";
  expect_error(ErrorCode::kProtocol, "transport", [&] { decode_hello(encode(nameless)); });
}

TEST(HelloTest, EveryCorruptFieldOfAnAnswerIsNamed) {
  constexpr std::size_t kNonce = 14 + kErrorTextBytes;
  constexpr std::size_t kDevice = kNonce + 16;
  constexpr std::size_t kTransport = kDevice + kDeviceKindBytes;
  constexpr std::size_t kRejected = kTransport + kTransportNameBytes + kDeviceNameBytes;
  constexpr std::size_t kFallbacks = kRejected + kErrorTextBytes;
  const struct {
    std::size_t place;
    int value;
    const char* field;
  } cases[] = {
      {12, 2, "status"},
      {13, 13, "error code"},
      {14, 0x7f, "error text"},
      {kDevice, 0x1b, "device"},
      {kDevice + kDeviceKindBytes - 1, 'x', "device"},
      {kTransport, 0x1b, "transport"},
      {kTransport + kTransportNameBytes, 0, "device name"},
      {kRejected, 0x80, "list of reasons"},
      {kFallbacks, kMaxDevices, "fallbacks"},
      {kFallbacks + 8, 1, "offer"},     // 257 bytes
      {kFallbacks + 9, 0x10, "offer"},  // 4352 bytes
  };
  for (const auto& item : cases) {
    Bytes frame = encode(some_answer());
    frame[item.place] = static_cast<std::byte>(item.value);
    if (item.place == kFallbacks + 8) frame[kFallbacks + 9] = std::byte{1};
    expect_error(ErrorCode::kProtocol, item.field, [&] { decode_answer(frame); });
  }
  Bytes padded = encode(some_answer());
  padded[kFallbacks + 9] = std::byte{0};
  padded[kFallbacks + 8] = std::byte{10};  // the other bytes are not zero
  expect_error(ErrorCode::kProtocol, "offer", [&] { decode_answer(padded); });
}

TEST(HelloTest, EveryCorruptFieldOfAResultIsNamed) {
  const struct {
    std::size_t place;
    int value;
    const char* field;
  } cases[] = {{12, 2, "status"},
               {13, 99, "error code"},
               {15, 'x', "error text"},
               {14 + kErrorTextBytes + 1, 0x10, "setup"},
               {kResultBytes - 1, 1, "setup"}};
  for (const auto& item : cases) {
    Bytes frame = encode(some_result());
    frame[item.place] = static_cast<std::byte>(item.value);
    expect_error(ErrorCode::kProtocol, item.field, [&] { decode_result(frame); });
  }
}

TEST(HelloTest, OtherVersionsAreNamedTogetherWithOurs) {
  Bytes frame = encode(some_hello());
  frame[4] = std::byte{7};
  frame[5] = std::byte{1};
  expect_error(ErrorCode::kVersion, "version 263 ", [&] { decode_hello(frame); });
  expect_error(ErrorCode::kVersion, "this side version " + std::to_string(kProtocolVersion),
               [&] { decode_hello(frame); });
}

TEST(HelloTest, WrongKindsSizesAndMagicAreRefused) {
  const Bytes hello = encode(some_hello());
  expect_error(ErrorCode::kProtocol, "got its hello", [&] { decode_answer(hello); });
  expect_error(ErrorCode::kProtocol, "got its answer",
               [&] { decode_result(encode(some_answer())); });
  Bytes wrong = hello;
  wrong[0] = std::byte{'L'};
  expect_error(ErrorCode::kProtocol, "'Leat", [&] { decode_hello(wrong); });
  wrong = hello;
  wrong[6] = std::byte{77};
  expect_error(ErrorCode::kProtocol, "unknown frame", [&] { decode_hello(wrong); });
  wrong = hello;
  wrong[8] = static_cast<std::byte>(std::to_integer<int>(wrong[8]) ^ 1);
  expect_error(ErrorCode::kProtocol, "another size", [&] { decode_hello(wrong); });
}

TEST(HelloTest, TruncatedAndOversizedFramesAreRefused) {
  const Bytes whole = encode(some_hello());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_THROW(decode_hello(std::span(whole).first(bytes)), Error) << bytes;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  expect_error(ErrorCode::kProtocol, "size", [&] { decode_hello(longer); });
}

TEST(HelloTest, OtherProtocolsAreRecognized) {
  const auto header = [](std::string text) {
    text.resize(kFrameHeaderBytes);
    const auto bytes = std::as_bytes(std::span(text));
    check_header(bytes, FrameKind::kHello);
  };
  expect_error(ErrorCode::kProtocol, "HTTP: 'GET / HTTP/1", [&] { header("GET / HTTP/1.1"); });
  expect_error(ErrorCode::kProtocol, "HTTP", [&] { header("HTTP/1.1 400 Bad"); });
  expect_error(ErrorCode::kProtocol, "SSH", [&] { header("SSH-2.0-OpenSSH"); });
  expect_error(ErrorCode::kAuthentication, "TLS", [&] { header("\x16\x03\x01\x02\x01\x01"); });
  expect_error(ErrorCode::kAuthentication, "TLS", [&] { header("\x15\x03\x03"); });
  expect_error(ErrorCode::kProtocol, "\\x00", [&] { header(std::string(12, '\0')); });
}

TEST(HelloTest, RandomBytesNeverPass) {
  std::mt19937 random(20240601);
  for (int round = 0; round < 2000; ++round) {
    Bytes frame(random() % (2 * kMaxFrameBytes));
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random());
    EXPECT_THROW(decode_hello(frame), Error);
    EXPECT_THROW(decode_answer(frame), Error);
    EXPECT_THROW(decode_result(frame), Error);
  }
}

// Whatever a flipped byte does, a frame that still decodes says the same when it is encoded again.
TEST(HelloTest, FramesThatDecodeEncodeToThemselves) {
  const Bytes whole = encode(some_hello());
  std::mt19937 random(4711);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes frame = whole;
    frame[i] ^= static_cast<std::byte>(1 + random() % 255);
    try {
      EXPECT_EQ(encode(decode_hello(frame)), frame) << "byte " << i;
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace leat::detail
