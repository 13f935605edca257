#include "client.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "sha256.h"

namespace federated {
namespace {

Task receive_task(leat::GroupWorker& server) {
  const leat::Message message = server.receive();
  if (!message) throw std::runtime_error("the server ended before it gave a task");
  return parse_task(message.text());
}

}  // namespace

Client::Client(leat::GroupWorker& server, std::uint64_t samples, ClientProgress progress)
    : server_(server),
      samples_(samples),
      progress_(std::move(progress)),
      task_(receive_task(server)),
      model_(task_.shapes) {}

ClientReport Client::run() {
  ClientReport report;
  double loss = 0;
  for (;;) {
    const Word word = receive_word();
    const bool again = word.kind == Kind::kAgain;
    const bool is_final = word.kind == Kind::kFinal;
    if ((!again && !is_final && word.kind != Kind::kModel) ||
        word.round != report.rounds + (again ? 0 : 1) || word.round == 0)
      throw std::runtime_error("the server said a word that was not due");
    if (again) {
      ++report.sent_again;
    } else {
      receive_model(word.round);
      if (is_final) break;
      report.rounds = word.round;
      progress_(word.round, "training", 0);
      loss = train(model_.all(), {task_.seed + 1 + server_.rank(), task_.steps, task_.rate});
    }
    send_update(word.round, loss);
  }
  Word word;
  word.kind = Kind::kDigest;
  word.round = report.rounds + 1;
  word.digest = received_;
  send(bytes_of(word));
  report.digest = to_text(received_);
  if (server_.receive()) throw std::runtime_error("the server sent more after the end");
  return report;
}

// A server that gives up ends the connection, and has said why.
void Client::send(std::span<const std::byte> message) {
  try {
    server_.send(message);
  } catch (const leat::Error& error) {
    if (error.code() == leat::ErrorCode::kPeerDied) static_cast<void>(receive_word());
    throw;
  }
}

leat::Message Client::receive() {
  leat::Message message = server_.receive();
  if (!message) throw std::runtime_error("the server ended before the last round");
  return message;
}

Word Client::receive_word() {
  const Word word = parse_word(receive().bytes());
  if (word.kind == Kind::kGaveUp)
    throw std::runtime_error("the server gave up: " + std::string(receive().text()));
  return word;
}

void Client::receive_model(unsigned round) {
  Sha256 digest;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const leat::Message message = receive();
    const std::span<std::byte> tensor = std::as_writable_bytes(model_.tensor(i));
    if (message.size() != tensor.size())
      throw std::runtime_error("the server sent another size of " + model_.shapes()[i].name);
    digest.update(message.bytes());
    std::memcpy(tensor.data(), message.data(), tensor.size());
    done += tensor.size();
    progress_(round, "receiving", static_cast<double>(done) / static_cast<double>(model_.bytes()));
  }
  received_ = to_digest(digest.hex());
  const Word word = receive_word();
  if (word.kind != Kind::kDigest || word.digest != received_)
    throw std::runtime_error("SHA-256 differs: the model was damaged on its way from the server");
}

void Client::send_update(unsigned round, double loss) {
  Word word;
  word.kind = Kind::kUpdate;
  word.round = round;
  word.samples = samples_;
  word.loss = loss;
  word.digest = received_;
  send(bytes_of(word));
  Sha256 digest;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const std::span<const std::byte> tensor = std::as_bytes(std::as_const(model_).tensor(i));
    send(tensor);
    digest.update(tensor);  // while it is on its way
    done += tensor.size();
    progress_(round, "sending", static_cast<double>(done) / static_cast<double>(model_.bytes()));
  }
  word.kind = Kind::kDigest;
  word.digest = to_digest(digest.hex());
  send(bytes_of(word));
}

}  // namespace federated
