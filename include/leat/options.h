// Settings of a connection or listener.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "leat/cxx20.h"
#include "leat/export.h"

namespace leat {

// An option that is set here wins over the URI's parameter, that over the LEAT_* variable, that
// over the files (the one that LEAT_CONF_FILE names, ~/.leat.conf, /etc/leat.conf), and those over
// the default. Each field has the name of its setting; `leat-info -c` lists all settings with
// value, default, help and origin. Plain value.
struct LEAT_EXPORT Options {
  // "auto", "shm", "ib", "ib:NAME", "tcp" (no RDMA), or a list: "ib:mlx5_0,ib:mlx5_1", "^shm".
  std::optional<std::string> device;
  // "auto" (ring where there is RDMA, else tcp), "ring", "planned", "confirm-each", "batched",
  // "chunked" or "tcp"; "attested+ring" or "sealed+ring", and likewise with the others.
  std::optional<std::string> transport;
  // Whether to fall back if the best device cannot be used: "never" (fail), "warn" or "allow".
  std::optional<std::string> fallback;
  // Whether messages that leave this host are encrypted: "off" (default; as the other options say),
  // "prefer" (wherever there is a key for TLS) or "require" (or else connecting fails). Where
  // transport is "auto", RDMA between hosts then goes by "sealed+ring".
  std::optional<std::string> confidential;

  // The longest time that a wait spins before it sleeps; a waiter learns when less pays. While
  // waits sleep, a few of them, for some per cent of the time, find out whether up to four times as
  // long pays. 0: sleep at once. Negative: never sleep.
  std::optional<std::chrono::microseconds> spin;
  // Limit of connect(), including name resolution, retries and the handshake.
  std::optional<std::chrono::milliseconds> connect_timeout;
  // Limit of the handshake of one client at a listener.
  std::optional<std::chrono::milliseconds> handshake_timeout;
  // How many connections a listener completes before accept() takes one, 1 to 65535; further
  // clients wait.
  std::optional<std::size_t> backlog;
  // Limit of one blocking send, receive, flush or accept. Negative (default): none.
  std::optional<std::chrono::milliseconds> timeout;
  // How long a closed connection goes on sending, in the background, what was not flushed.
  std::optional<std::chrono::milliseconds> linger;
  // Whether to try again while the peer refuses, until connect_timeout, so that programs may start
  // in any order.
  std::optional<bool> connect_retry;

  // Receive memory of context 0, and of each other context, in bytes. 0 (default): depends on the
  // device; see `leat-info -c`.
  std::optional<std::size_t> ring_bytes;
  std::optional<std::size_t> ring_context_bytes;
  // The largest message that this side sends or accepts.
  std::optional<std::size_t> max_message_bytes;
  // Transports batched and confirm-each: the message bytes of a slot, 64 to 16 MiB, and the number
  // of slots, 16 to 1024, of context 0. Every other context has 64 slots of a quarter of that size.
  // Both sides use the smaller values of the two.
  std::optional<std::size_t> slot_bytes;
  std::optional<std::size_t> slot_count;
  // Transport batched: the sender reads the receiver's bitmap when less than this percentage of its
  // slots is free, 0 to 100.
  std::optional<std::size_t> batched_confirm_threshold;
  // Transport batched: whether small messages that this side sends share slots (default: yes). The
  // peer decides for those that it sends.
  std::optional<bool> batched_bundles;
  // Transport planned: memory for message arrays, equal on both sides. 0 (default): depends on the
  // device.
  std::optional<std::size_t> planned_bytes;
  // Transport planned: the digest of the plan, up to 32 bytes in hexadecimal, equal on both sides.
  std::optional<std::string> planned_digest;

  // Transport chunked: how the chunks of a transfer reach their place, "inplace" (default) or
  // "header".
  std::optional<std::string> chunked_mode;
  // Transport chunked: the longest chunk, 4 KiB to 1 GiB.
  std::optional<std::size_t> chunked_chunk_bytes;
  // Transport chunked: how many chunks may be on the path, "auto" (default: as many bytes as the
  // path holds) or a number from 1 to 256.
  std::optional<std::string> chunked_window;
  // Transport chunked: whether a short chunk opens the path for the others, "on", "off" or "auto".
  std::optional<std::string> chunked_link_enable;
  // Transport chunked: receive memory of context 0, as the largest message received in place and
  // the number of such regions, 2 to 64. 0 (default): depends on the device.
  std::optional<std::size_t> chunked_region_bytes;
  std::optional<std::size_t> chunked_region_count;
  // Transport chunked: whether the receiver checks each message by its digest when it has arrived.
  std::optional<bool> chunked_verify;
  // Device ib: how long, at least, the device tries to reach a peer that no longer answers (no
  // power, no path) before requests to it fail, in steps of a factor of two; a device may take up
  // to four times as long. A peer that ends, or whose process dies, is noticed at once.
  std::optional<std::chrono::milliseconds> ib_peer_timeout;

  // Transport chunked: how long to keep trying to re-establish a failed queue pair. 0: do not try.
  std::optional<std::chrono::milliseconds> chunked_resume_timeout;

  // Transports attested+X: where session keys and counters are held, "in-process" (default) or the
  // absolute path of leat-attestd's socket; the user as whom that daemon may run, by name or number
  // (default "leat-attestd"), beside root and this process's own user; the public key that the
  // daemon must prove to be its own, 64 hexadecimal digits as leat-attestd prints them (default:
  // none, so any daemon of those users is believed); and the session among those that leat-attestd
  // was provisioned with, 0 to 4294967295, of which 0 (default) stands for the one of its key file.
  std::optional<std::string> attest_kernel;
  std::optional<std::string> attest_kernel_user;
  std::optional<std::string> attest_kernel_key;
  std::optional<std::size_t> attest_session;
  // Transports attested+X in-process: the file of the key that both sides share (as tls_psk_file,
  // with 64 to 128 digits), and the MAC: "hmac-sha256" (default), "hmac-sha384", "hmac-sha512" or
  // "aes256-gmac".
  std::optional<std::string> attest_key_file;
  std::optional<std::string> attest_algorithm;

  // Transports sealed+X: how messages are encrypted, "auto" (default), "aes-256-gcm", "aes-128-gcm"
  // or "chacha20-poly1305". Auto takes what the other side names, else AES-256-GCM where both
  // processors have instructions for it, else ChaCha20-Poly1305.
  std::optional<std::string> sealed_cipher;

  // TLS 1.3 around the handshake and around transport tcp: either the file of a pre-shared key (one
  // line of hexadecimal digits), or a certificate, its private key, and the authority that signed
  // the peer's certificate.
  std::optional<std::string> tls_psk_file;
  std::optional<std::string> tls_cert_file;
  std::optional<std::string> tls_key_file;
  std::optional<std::string> tls_ca_file;
  // Whether the listener's certificate must name the host that the client connected to (default:
  // yes). No: any certificate of the authority is accepted for any host.
  std::optional<bool> tls_check_names;
};

}  // namespace leat
