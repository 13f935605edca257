/* A program of TCP sockets, made leat's by names: it connects to itself, and its other file waits.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int wait_until_readable(int descriptor);

int main(void) {
  struct sockaddr_in address;
  socklen_t bytes = sizeof address;
  char text[6] = "";
  int listener, client, server;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr*)&address, sizeof address) < 0 || listen(listener, 1) < 0 ||
      getsockname(listener, (struct sockaddr*)&address, &bytes) < 0)
    return 1;
  client = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(client, (struct sockaddr*)&address, sizeof address) < 0) return 2;
  server = accept(listener, NULL, NULL);
  if (server < 0 || write(client, "bytes", 5) != 5) return 3;
  if (!wait_until_readable(server) || read(server, text, 5) != 5) return 4;
  puts(text);
  close(client);
  close(server);
  close(listener);
  return strcmp(text, "bytes");
}
