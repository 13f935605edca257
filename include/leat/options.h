// Settings of a connection or listener.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "leat/export.h"

namespace leat {

// What is set here wins over the URI's parameters, those over LEAT_* variables, those over the file
// named by LEAT_CONF_FILE, ~/.leat.conf and /etc/leat.conf, those over the defaults. Every field
// has the name of its setting; `leat-info -c` lists all with value, default, help and origin. Plain
// value.
struct LEAT_EXPORT Options {
  // "auto", "shm", "ib", "ib:NAME", "tcp" (no RDMA), or a list: "ib:mlx5_0,ib:mlx5_1", "^shm".
  std::optional<std::string> device;
  // "auto" (ring where there is RDMA, else tcp), "ring", "planned", "confirm-each",
  // "batched", "chunked", "tcp"; "attested+ring", and so of planned, batched and chunked.
  std::optional<std::string> transport;
  // What to do if the best device cannot be had: "never", "warn" or "allow" falling back.
  std::optional<std::string> fallback;

  // How long a wait spins before it sleeps. 0: sleep at once. Negative: never sleep.
  std::optional<std::chrono::microseconds> spin;
  // Limit of connect(), the name look-up, retries and handshake included.
  std::optional<std::chrono::milliseconds> connect_timeout;
  // Limit of a listener for the handshake of one newcomer.
  std::optional<std::chrono::milliseconds> handshake_timeout;
  // Limit of one blocking send, receive, flush or accept. Negative (default): none.
  std::optional<std::chrono::milliseconds> timeout;
  // How long a closed connection goes on sending, in the background, what was not flushed.
  std::optional<std::chrono::milliseconds> linger;
  // Try again while the peer refuses, until connect_timeout: start programs in any order.
  std::optional<bool> connect_retry;

  // Receive memory of context 0 and of each other context. 0 (default): by device; see leat-info
  // -c.
  std::optional<std::size_t> ring_bytes;
  std::optional<std::size_t> context_ring_bytes;
  // The largest message accepted from or sent to the peer.
  std::optional<std::size_t> max_message_bytes;
  // Transports batched and confirm-each: bytes of message in a slot, 64 to 16 MiB, and slots, 16 to
  // 1024, of context 0; the other contexts have 64 slots of a quarter of the size each. Both sides
  // use the smaller.
  std::optional<std::size_t> slot_bytes;
  std::optional<std::size_t> slot_count;
  // Transport batched: percent of free slots under which the receiver is asked for more, 0 to 100.
  std::optional<std::size_t> confirm_threshold;
  // Transport planned: memory for message arrays, the same on both sides. 0 (default): by device.
  std::optional<std::size_t> planned_bytes;
  // Transport planned: the digest of the plan, up to 32 bytes in hexadecimal; the peer's must be
  // equal.
  std::optional<std::string> plan_digest;

  // Transport chunked. How a transfer's chunks reach their place: "inplace" (default) or "header".
  std::optional<std::string> mode;
  // The longest chunk, 4 KiB to 1 GiB.
  std::optional<std::size_t> chunk_bytes;
  // How many chunks may be on the path: "auto" (default: as many bytes as it holds) or a number.
  std::optional<std::string> window;
  // Whether a short chunk opens the path for the others: "on", "off" or "auto".
  std::optional<std::string> link_enable;
  // Receive memory of context 0: the largest message received in place, and how many such regions,
  // 2 to 64. 0 (default): by device.
  std::optional<std::size_t> region_bytes;
  std::optional<std::size_t> region_count;
  // Whether each message is checked by its digest when it has arrived.
  std::optional<bool> verify;
  // How long a failed queue pair is tried to be made anew. 0: not at all.
  std::optional<std::chrono::milliseconds> resume_timeout;

  // Transports attested+X: who holds keys and counters, "in-process" (default) or the absolute path
  // of leat-attestd's socket; and which of the sessions that it was provisioned with, 0 (default)
  // meaning its key file.
  std::optional<std::string> attest_kernel;
  std::optional<std::size_t> attest_session;
  // In process, the key that both sides have, a file as of tls_psk_file with 64 to 128
  // digits; and the MAC: "hmac-sha256" (default), "hmac-sha384", "hmac-sha512" or "aes256-gmac".
  std::optional<std::string> attest_key_file;
  std::optional<std::string> attest_algorithm;

  // TLS 1.3 around the handshake and the tcp transport: a pre-shared key file (hexadecimal, one
  // line), or a certificate, its key, and the authority that signed the peer's.
  std::optional<std::string> tls_psk_file;
  std::optional<std::string> tls_cert_file;
  std::optional<std::string> tls_key_file;
  std::optional<std::string> tls_ca_file;
};

}  // namespace leat
