/* An echo server and its client, of plain TCP sockets: `tcp_echo PORT` serves one connection (at a
 * port that it tells, if PORT is 0), `tcp_echo PORT TEXT` sends a line and prints what comes back.
 *
 * The same file is two programs: tcp_echo uses the kernel's TCP, and leat_echo leat: it is compiled
 * with -include leat/names.h. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char* what) {
  perror(what);
  return 1;
}

static int serve(struct sockaddr_in* address) {
  const int on = 1;
  socklen_t address_bytes = sizeof *address;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr*)address, address_bytes) < 0) return fail("bind");
  if (listen(listener, 1) < 0) return fail("listen");
  if (getsockname(listener, (struct sockaddr*)address, &address_bytes) < 0)
    return fail("getsockname");
  printf("listening at port %u\n", ntohs(address->sin_port));
  fflush(stdout);
  const int connection = accept(listener, NULL, NULL);
  if (connection < 0) return fail("accept");
  char bytes[4096];
  ssize_t count = 0;
  while ((count = read(connection, bytes, sizeof bytes)) > 0) {
    if (write(connection, bytes, (size_t)count) != count) return fail("write");
  }
  close(connection);
  close(listener);
  return count < 0 ? fail("read") : 0;
}

static int ask(const struct sockaddr_in* address, const char* text) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(connection, (const struct sockaddr*)address, sizeof *address) < 0)
    return fail("connect");
  const size_t bytes = strlen(text);
  if (write(connection, text, bytes) != (ssize_t)bytes) return fail("write");
  shutdown(connection, SHUT_WR);
  char answer[4096];
  ssize_t count = 0;
  while ((count = read(connection, answer, sizeof answer)) > 0) {
    fwrite(answer, 1, (size_t)count, stdout);
  }
  putchar('\n');
  close(connection);
  return count < 0 ? fail("read") : 0;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "Usage: %s PORT [TEXT]\n", argv[0]);
    return 2;
  }
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons((unsigned short)strtoul(argv[1], NULL, 10));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return argc > 2 ? ask(&address, argv[2]) : serve(&address);
}
