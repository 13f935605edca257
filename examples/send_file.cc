// Sends a file to another process, on this machine or another, and proves by SHA-256 that it
// arrived.
//
// The sender reads the file straight into memory of reserve(), which on shm is the receiver's own;
// the receiver writes the file straight from where the messages arrived.
//
// Messages: a head "leat-send-file 1 SIZE NAME", the pieces of the file, its SHA-256 as text. The
// receiver answers "ok", or at any time with the reason why it gives up.
#include <leat/leat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "files.h"
#include "progress_bar.h"
#include "sha256.h"

namespace {

constexpr std::string_view kHead = "leat-send-file 1 ";
constexpr std::size_t kPieceBytes = 1 << 20;
constexpr const char* kOk = "ok";

// What is said while a file is under way, and at its end.
class Meter {
 public:
  Meter(const char* what, std::uint64_t bytes) : bar_(what), bytes_(bytes) {}

  void update(std::uint64_t done) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.2f GB/s", gigabytes_per_second(done));
    bar_.update(bytes_ == 0 ? 1 : static_cast<double>(done) / static_cast<double>(bytes_), rate);
  }
  void finish(const char* verb, const std::string& name, const std::string& digest,
              const leat::Channel& channel) {
    bar_.clear();
    std::printf("%s %s: %llu bytes, %.2f GB/s, over %s on %s\nSHA-256 %s, equal at both ends\n",
                verb, name.c_str(), static_cast<unsigned long long>(bytes_),
                gigabytes_per_second(bytes_), channel.transport().c_str(), channel.device().c_str(),
                digest.c_str());
  }

 private:
  double gigabytes_per_second(std::uint64_t done) const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    return static_cast<double>(done) / elapsed.count() * 1e-9;
  }

  ProgressBar bar_;
  std::uint64_t bytes_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The receiver speaks before the end only if something is wrong.
void throw_if_receiver_gave_up(leat::Channel& channel) {
  const auto word = channel.try_receive();
  if (!word) return;
  throw std::runtime_error("the receiver gave up: " + std::string(word->text()));
}

void send_file(const std::string& path, const std::string& address) {
  InputFile file(path);
  leat::Channel channel = leat::Channel::connect(address);
  const std::string name = std::filesystem::path(path).filename();
  channel.send(std::string(kHead) + std::to_string(file.size()) + " " + name);

  const std::size_t piece_bytes = std::min(kPieceBytes, channel.max_in_place_bytes());
  Sha256 digest;
  Meter meter("sending", file.size());
  for (std::uint64_t done = 0; done < file.size();) {
    throw_if_receiver_gave_up(channel);
    const std::size_t bytes = std::min<std::uint64_t>(piece_bytes, file.size() - done);
    const std::span<std::byte> piece = channel.reserve(bytes);
    file.read(piece);
    digest.update(piece);
    channel.commit(bytes);
    done += bytes;
    meter.update(done);
  }
  const std::string sum = digest.hex();
  channel.send(sum);
  const leat::Message answer = channel.receive();
  if (answer.text() != kOk) {
    throw std::runtime_error("the receiver gave up: " + std::string(answer.text()));
  }
  meter.finish("sent", path, sum, channel);
}

struct Head {
  std::uint64_t bytes = 0;
  std::string name;
};

Head parse_head(std::string_view text) {
  Head head;
  if (!text.starts_with(kHead)) throw std::runtime_error("the peer is not a send_file");
  text.remove_prefix(kHead.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.bytes);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') {
    throw std::runtime_error("the peer sent no file size");
  }
  head.name = std::string(end + 1, text.data() + text.size());
  return head;
}

// The name that the sender gave is not trusted: it must not lead out of the current folder.
std::string safe_name(const std::string& name) {
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    throw std::runtime_error("the sender's file name leads out of this folder; use --output FILE");
  }
  return name;
}

leat::Message receive_more(leat::Channel& channel) {
  leat::Message message = channel.receive();
  if (!message) throw std::runtime_error("the sender ended before the file was complete");
  return message;
}

void receive_file(leat::Channel& channel, std::string output, bool replace) {
  const Head head = parse_head(receive_more(channel).text());
  if (output.empty()) output = safe_name(head.name);
  OutputFile file(output, replace);
  Sha256 digest;
  Meter meter("receiving", head.bytes);
  for (std::uint64_t done = 0; done < head.bytes;) {
    const leat::Message piece = receive_more(channel);
    if (piece.size() == 0 || piece.size() > head.bytes - done) {
      throw std::runtime_error("the sender sent another size than it had announced");
    }
    digest.update(piece.bytes());
    file.write(piece.bytes());
    done += piece.size();
    meter.update(done);
  }
  const std::string sum = digest.hex();
  if (receive_more(channel).text() != sum) {
    throw std::runtime_error("SHA-256 differs: the file was damaged on its way");
  }
  file.keep();
  channel.send(kOk);
  if (channel.receive()) throw std::runtime_error("the sender sent more after the end");
  meter.finish("received", output, sum, channel);
}

void listen_for_file(const std::string& address, const std::string& output, bool replace) {
  if (!output.empty()) OutputFile::check_free(output, replace);  // before a sender comes in vain
  leat::Listener listener(address);
  std::printf("listening at leat://%s\n", listener.address().c_str());
  std::fflush(stdout);
  leat::Channel channel = listener.accept();
  try {
    receive_file(channel, output, replace);
  } catch (const std::runtime_error& error) {
    try {  // tell the sender why, and wait until it has heard it
      channel.send(error.what());
      while (channel.receive()) {
      }
    } catch (const leat::Error&) {
      // It is gone; our own message has the reason.
    }
    throw;
  }
}

constexpr const char* kFooter = R"(Examples, each in a terminal of its own:
  send_file --listen --output copy.iso         prints an address such as leat://127.0.0.1:41017
  send_file big.iso leat://127.0.0.1:41017
  send_file --listen :7000                     for other machines; keeps the sender's file name
  send_file big.iso 'leat://HOST:7000?transport=tcp'

Exit code: 0 when the file arrived whole, 1 if not, 2 for wrong arguments.)";

int run(int argc, char** argv) {
  CLI::App app("Sends a file over leat, checked by SHA-256.", "send_file");
  app.footer(kFooter);
  std::string path;
  std::string address;
  std::string listen_address;
  std::string output;
  bool force = false;
  app.add_option("FILE", path, "The file to send");
  app.add_option("ADDRESS", address, "Address at which a send_file listens");
  CLI::Option* listen =
      app.add_option("--listen", listen_address,
                     "Receive a file: HOST:PORT, :PORT for all addresses (default: 127.0.0.1:0)")
          ->expected(0, 1)
          ->type_name("[ADDRESS]");
  app.add_option("--output", output, "Where to write it (default: the sender's name for it, here)")
      ->needs(listen)
      ->type_name("FILE");
  app.add_flag("--force", force, "Replace a file that exists")->needs(listen);
  try {
    app.parse(argc, argv);
    if (listen->count() == 0 && address.empty()) {
      throw CLI::RequiredError("either FILE and ADDRESS to send, or --listen to receive,");
    }
    if (listen->count() > 0 && !path.empty()) {
      throw CLI::ExtrasError({path + " (with --listen nothing is sent; give --output FILE)"});
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (listen->count() > 0) {
    listen_for_file(listen_address.empty() ? "127.0.0.1:0" : listen_address, output, force);
  } else {
    send_file(path, address);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "send_file: %s\n", error.what());
    return 1;
  }
}
