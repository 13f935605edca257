// The scenarios of sockets_program: each prints what a program sees.
#pragma once

namespace sockets {

// --- Bytes both ways, and how a connection ends.
void bulk();
void half_close();
void closing();
void killed();
void flags();
void signals();
void waking();
void streams();
void files();

// --- poll, select and epoll.
void epoll();
void selecting();

// --- Several processes with the same connections.
void following(const char* self);
void executed();
void refusing();
void prefork();
void reconnecting();
void standing();
void standing_child();
void children();

// --- What gets out of sight.
void escaping();
void writing_past();

// --- What does not belong here.
void minding_strangers();

// --- Connecting, in vain too.
void connecting();
void refused();
void elsewhere();

// --- Server and client, each a program.
void serve(const char* host, const char* port);
void ask(const char* host, const char* port);
void spoil(const char* host, const char* port);

}  // namespace sockets
