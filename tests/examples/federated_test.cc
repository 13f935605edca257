// The program federated as a user runs it, and against clients and servers that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <leat/leat.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "federated/model.h"
#include "federated/words.h"
#include "sha256.h"
#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using federated::Kind;
using federated::Model;
using federated::Word;
using testing::HasSubstr;

constexpr const char* kFederated = "examples/federated/federated";
// 18 tensors of 48 to 62k values.
constexpr unsigned kScale = 32;
Arguments tiny(const std::string& transport = "chunked") {
  return {"--layers",    "1",       "--scale",  std::to_string(kScale),
          "--transport", transport, "--rounds", "3"};
}
federated::Shapes tiny_shapes() { return federated::gpt2_shapes(1, kScale); }

// Federated averaging as one would write it down, of a model that lies in one piece.
std::vector<float> averaged(std::vector<float> model, unsigned rounds,
                            const std::vector<std::pair<unsigned, double>>& clients) {
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < model.size(); ++i) {
      double sum = 0;
      double total = 0;
      for (const auto& [rank, samples] : clients) {
        const float data = federated::seeded_value(1 + 1 + rank, i);
        const float step = 0.25F * (model[i] - data);
        sum += samples * static_cast<double>(model[i] - step);
        total += samples;
      }
      model[i] = static_cast<float>(sum / total);
    }
  }
  return model;
}

std::vector<float> values_of(Model model) { return {model.all().begin(), model.all().end()}; }

std::string digest_of(const std::vector<float>& values) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(values)));
  return digest.hex();
}

TEST(FederatedModel, DefaultIsThatOfGpt2With117MillionParameters) {
  const federated::Shapes shapes = federated::gpt2_shapes(12, 1);
  std::uint64_t values = 0;
  for (const federated::Shape& shape : shapes) values += shape.values();
  EXPECT_EQ(values, 124'439'808U);  // as the published weights have
  EXPECT_EQ(shapes.size(), 148U);
  const std::string text = to_text(shapes);
  for (const char* line : {"wte.weight 50257x768\n", "wpe.weight 1024x768\n",
                           "h.0.attn.c_attn.weight 768x2304\n", "h.11.mlp.c_proj.bias 768\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_EQ(federated::parse_shapes(text), shapes);
}

TEST(FederatedModel, ListsOfTensorsThatMakeNoSenseAreRefused) {
  for (const char* text :
       {"", "\n", "name", "name ", "name x", "name 3x", "name 3x0", "name -1", "name 3 4", "/etc 3",
        "../a 3", ".a 3", "a/b 3", "a 99999999999999999999", "a 65536x65536", "a 2x2x2x2x2x2x2x2x2",
        "a 3\na 3", "a 4294967296x4294967296x4294967296"})
    EXPECT_THROW((void)federated::parse_shapes(text), std::runtime_error) << text;
  for (const char* text :
       {"", "leat-federated-1 ", "leat-federated-1 rounds 1 steps 1 rate 2 seed 1\na 1\n",
        "leat-federated-1 rounds 1 steps 1 rate nan seed 1\na 1\n",
        "leat-federated-1 rounds 1 steps 99999 rate 0 seed 1\na 1\n",
        "leat-federated-1 rounds 1 steps 1 rate 0 seed 1"})
    EXPECT_THROW((void)federated::parse_task(text), std::runtime_error) << text;
}

class Federated : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string output() const { return path("output"); }
  std::vector<float> result() const { return values_of(Model::load(output())); }

  ScratchFolder folder_;
};

TEST_F(Federated, ResultIsThePlainMeanBitForBitOverEveryTransport) {
  const std::vector<float> expected =
      averaged(values_of(Model::seeded(tiny_shapes(), 1)), 3, {{0, 3}, {1, 500'000'001}, {2, 7}});
  for (const char* transport : {"chunked", "ring", "batched", "tcp"}) {
    const ProgramResult run = run_program(
        kFederated, tiny(transport) + Arguments{"--clients", "3", "--samples", "3,500000001,7",
                                                "--output", output(), "--json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(result(), expected) << transport;
    const nlohmann::json json = nlohmann::json::parse(run.out, nullptr, false);
    EXPECT_EQ(json.at("sha256"), digest_of(expected));
    EXPECT_EQ(json.at("transport"), transport);
    ASSERT_EQ(json.at("rounds").size(), 3U);
    for (const auto& round : json.at("rounds")) {
      EXPECT_EQ(round.at("clients"), 3);
      EXPECT_GE(round.at("received_bytes"), 3 * json.at("model_bytes").get<std::uint64_t>());
      EXPECT_GE(round.at("sent_bytes"), 3 * json.at("model_bytes").get<std::uint64_t>());
      EXPECT_GT(round.at("goodput_bytes_per_second"), 0);
    }
    EXPECT_LT(json.at("rounds")[2].at("loss"), json.at("rounds")[0].at("loss"));
  }
}

// By leat's settings alone. Over TCP, which counts as leaving the host.
TEST_F(Federated, ConfidentialNeedsAKeyAndSaysSo) {
  const ScratchVariable device("LEAT_DEVICE", "tcp");
  const ScratchVariable require("LEAT_CONFIDENTIAL", "require");
  const ProgramResult refused = run_program(kFederated, tiny("tcp"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("confidential = require"));
  EXPECT_THAT(refused.err, HasSubstr("tls_psk_file"));
  const ScratchVariable key("LEAT_TLS_PSK_FILE", folder_.write("key", std::string(64, 'a')));
  const ScratchVariable log("LEAT_LOG_LEVEL", "info");
  const ProgramResult run = run_program(kFederated, tiny("tcp") + Arguments{"--clients", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(count_of("accepted ", run.err), 2U);
  EXPECT_GE(count_of("TLS", run.err), 2U) << run.err;
}

TEST_F(Federated, SealedChunksGiveTheSameResultAndNeedAKey) {
  const Arguments arguments =
      tiny("sealed+chunked") +
      Arguments{"--clients", "2", "--samples", "3,5", "--output", output(), "--json"};
  const ProgramResult refused = run_program(kFederated, arguments);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("sealed+chunked needs TLS"));
  EXPECT_THAT(refused.err, HasSubstr("tls_psk_file"));
  EXPECT_FALSE(std::filesystem::exists(output()));
  const ScratchVariable key("LEAT_TLS_PSK_FILE", folder_.write("key", std::string(64, 'a')));
  const ProgramResult run = run_program(kFederated, arguments);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(result(), averaged(values_of(Model::seeded(tiny_shapes(), 1)), 3, {{0, 3}, {1, 5}}));
  const nlohmann::json json = nlohmann::json::parse(run.out, nullptr, false);
  EXPECT_EQ(json.at("transport"), "sealed+chunked");
  EXPECT_EQ(json.at("sha256"), digest_of(result()));
}

TEST_F(Federated, OwnWeightsAreReadFromFilesOfTheStatedSizes) {
  const Model model = Model::seeded(federated::parse_shapes("a 3x5\nb 1\nlong-name_2 70000\n"), 9);
  model.save(path("mine"));
  const Arguments arguments{"--model",  path("mine"), "--output",  output(),
                            "--rounds", "1",          "--samples", "1"};
  const ProgramResult run = run_program(kFederated, arguments);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(result(), averaged(values_of(model), 1, {{0, 1}, {1, 1}}));

  std::filesystem::resize_file(path("mine/b.f32"), 3);
  const ProgramResult shorter = run_program(kFederated, arguments);
  EXPECT_EQ(shorter.exit_code, 1);
  EXPECT_THAT(shorter.err, HasSubstr("b.f32 has 3 bytes, but its shape in tensors.txt means 4"));
  std::filesystem::remove(path("mine/b.f32"));
  EXPECT_THAT(run_program(kFederated, arguments).err, HasSubstr("cannot open"));
}

// --- clients that fail

// A client in this process, which does all a client does up to a point.
class OwnClient {
 public:
  OwnClient(const std::string& address, unsigned rank)
      : worker_(GroupWorker::connect(address, options(rank))),
        task_(federated::parse_task(worker_.receive().text())),
        model_(task_.shapes) {}

  void receive_model() {
    Sha256 digest;
    EXPECT_EQ(federated::parse_word(worker_.receive().bytes()).kind, Kind::kModel);
    for (std::size_t i = 0; i < model_.size(); ++i) digest.update(worker_.receive().bytes());
    sent_ = federated::to_digest(digest.hex());
    EXPECT_EQ(federated::parse_word(worker_.receive().bytes()).digest, sent_);
  }
  void send_word(Kind kind, unsigned round = 1) {
    Word word;
    word.kind = kind;
    word.round = round;
    word.samples = 10;
    word.digest = sent_;
    worker_.send(bytes_of(word));
  }
  void send_tensor(std::size_t i) { worker_.send(std::as_bytes(model_.tensor(i))); }
  void send_tensors() {
    for (std::size_t i = 0; i < model_.size(); ++i) send_tensor(i);
  }
  GroupWorker& worker() { return worker_; }

 private:
  static GroupWorkerOptions options(unsigned rank) {
    GroupWorkerOptions options;
    options.rank = rank;
    options.options.transport = "chunked";
    return options;
  }
  GroupWorker worker_;
  federated::Task task_;
  Model model_;
  federated::Digest sent_{};
};

struct Failing {
  std::string name;
  std::function<void(OwnClient&)> act;  // after it has the first model; then it goes
  std::string reason;
};
void PrintTo(const Failing& failing, std::ostream* out) { *out << failing.name; }

class FederatedFailure : public Federated, public testing::WithParamInterface<Failing> {
 protected:
  // A server, a client 0 that is right, and one that is not. What the server said.
  ProgramResult run_with(const Arguments& more, ProgramResult& client_result) const {
    Program server(kFederated,
                   tiny() + Arguments{"--listen", "127.0.0.1:0", "--output", output()} + more);
    const std::string address = server.wait_for("listening at ");
    Program client(kFederated, {"--connect", address, "--rank", "0"});
    OwnClient failing(address, 1);
    failing.receive_model();
    GetParam().act(failing);
    failing.worker().channel().close();
    client_result = client.wait();
    return server.wait();
  }
};

TEST_P(FederatedFailure, OthersGoOnAndNothingOfItIsInTheMean) {
  ProgramResult client;
  const ProgramResult server = run_with({"--min-clients", "1"}, client);
  EXPECT_EQ(server.exit_code, 0) << server.err;
  EXPECT_THAT(server.out, HasSubstr("lost: worker 1"));
  EXPECT_THAT(server.out, HasSubstr(GetParam().reason));
  EXPECT_EQ(client.exit_code, 0) << client.err;
  const std::vector<float> expected =
      averaged(values_of(Model::seeded(tiny_shapes(), 1)), 3, {{0, 1000}});
  EXPECT_EQ(result(), expected);
  EXPECT_THAT(client.out, HasSubstr(digest_of(expected)));
}

TEST_P(FederatedFailure, WithoutPermissionTheRoundFailsAndEverybodyIsToldWhy) {
  ProgramResult client;
  const ProgramResult server = run_with({}, client);
  EXPECT_EQ(server.exit_code, 1);
  EXPECT_THAT(server.err, HasSubstr("1 of 2 clients are left, and --min-clients is 2"));
  EXPECT_THAT(server.err, HasSubstr(GetParam().reason));
  EXPECT_EQ(client.exit_code, 1);
  EXPECT_THAT(client.err, HasSubstr("the server gave up: 1 of 2 clients"));
  EXPECT_FALSE(std::filesystem::exists(output()));
}

std::vector<Failing> failures() {
  return {
      {"goes_while_it_trains", [](OwnClient&) {}, "ended"},
      {"goes_within_its_update",
       [](OwnClient& client) {
         client.send_word(Kind::kUpdate);
         client.send_tensor(0);
         client.send_tensor(1);
       },
       "ended"},
      {"sends_a_wrong_digest",
       [](OwnClient& client) {
         client.send_word(Kind::kUpdate);
         client.send_tensors();
         client.send_word(Kind::kDigest);  // of the model that it got, not of these zeros
       },
       "SHA-256 differs"},
      {"sends_another_size",
       [](OwnClient& client) {
         client.send_word(Kind::kUpdate);
         client.send_tensor(1);
       },
       "another size of wte.weight"},
      {"sends_the_wrong_round", [](OwnClient& client) { client.send_word(Kind::kUpdate, 9); },
       "a word that was not due"},
      {"sends_no_word", [](OwnClient& client) { client.worker().send("nonsense"); },
       "a message of 8 bytes where a word was due"},
  };
}

INSTANTIATE_TEST_SUITE_P(Clients, FederatedFailure, testing::ValuesIn(failures()),
                         [](const auto& failing) { return failing.param.name; });

TEST_F(Federated, SilentClientIsLeftOutAfterTheTimeout) {
  Program server(kFederated, tiny() + Arguments{"--listen", "127.0.0.1:0", "--min-clients", "1",
                                                "--timeout", "1"});
  const std::string address = server.wait_for("listening at ");
  Program client(kFederated, {"--connect", address, "--rank", "0"});
  OwnClient silent(address, 1);
  silent.receive_model();
  const ProgramResult result = server.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("it sent nothing in time"));
  EXPECT_EQ(client.wait().exit_code, 0);
}

TEST_F(Federated, ClientsNoticeAModelThatWasDamagedOnItsWay) {
  Options options;
  options.transport = "chunked";
  Listener listener("127.0.0.1:0", options);
  Program client(kFederated, {"--connect", listener.address()});
  GroupMaster server = GroupMaster::accept(listener, 1);
  federated::Task task;
  task.shapes = federated::parse_shapes("a 5\n");
  server.broadcast(to_text(task));
  Word word;
  word.round = 1;
  server.broadcast(bytes_of(word));
  server.broadcast(std::string(20, 'x'));
  word.kind = Kind::kDigest;
  server.broadcast(bytes_of(word));
  const ProgramResult result = client.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("SHA-256 differs: the model was damaged"));
}

TEST_F(Federated, WrongArgumentsExitWithTwoAndTeach) {
  const Arguments cases[] = {{"--clients", "0"},
                             {"--clients", "2", "--min-clients", "3"},
                             {"--connect", "x:1", "--listen", "y:2"},
                             {"--rank", "1"},
                             {"--model", "x", "--scale", "2"},
                             {"--connect", "x:1", "--samples", "1,2"},
                             {"--rate", "2"},
                             {"word"}};
  for (const Arguments& words : cases) {
    const ProgramResult result = run_program(kFederated, words);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(words);
    EXPECT_THAT(result.err, HasSubstr("--help"));
  }
  EXPECT_THAT(run_program(kFederated, {"--help"}).out, HasSubstr("Examples"));
  const ProgramResult unknown = run_program(kFederated, tiny("nosuch"));
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("nosuch"));
}

}  // namespace
}  // namespace leat::detail
