// Where the scripts keep away from what docs/sockets.md says is different under leat-run, or from
// what TCP leaves open. Nothing else may be avoided: each rule has its sentence there.
#pragma once

#include <string>

#include "script.h"

namespace posix_fuzz {

// late_offer: "While an offer is late ...": a connect() that did not block is followed by a poll of
// the same actor before anyone else acts. (Written where the generator connects.)

// reset_within_call: whether the answer to the first message of a sendmmsg comes before the second
// is sent is left open by TCP; so two are sent only to a peer that receives.

// received_by_none: how much is taken of a long send that nobody receives, and whether an end
// behind it arrives, is left open by TCP; so nothing is pumped to an actor that sleeps or has
// ended. (Written in the controller.)

// filled: how much fits, and so what another send to a full connection does, is left open by TCP;
// so until all of it was received, actors only poll and receive. (Written in the controller.)

// parts_and_sleepers: whether a sleeping receiver wakes between the messages of one sendmmsg is a
// race; so two are not sent while somebody may sleep.

// unseen_close: "raw system calls cannot be seen; do not use them on carried connections": a close
// past the C library cannot say that bytes were left unread, so they are read first.
bool is_unseen_close(int way);

// unseen_end: "a send asks the kernel once in a tick of its clock": after an end that says nothing
// in the shared memory, a close past the C library or a death, the controller rests for longer than
// that.
bool is_unseen_end(const std::string& operation, const Step& step);
constexpr int kUnseenEndUs = 12'000;

// unseen_copy: the same; a copy made past the C library is unknown.
bool is_unseen_copy(int way);

// Options that docs/sockets.md names as other than TCP's, or whose effect TCP leaves open.
bool is_left_out(int option);

// closed_elsewhere: "A process does not hear any more of a connection that it closed, though
// another process still has it open; nor of another socket that it closed past the C library, of
// which it closed a copy last, or of which it was told an edge": nobody closes such in a set.
// (Author::outlives_in_set)

// woken_for_nothing: a receiving call for no bytes that sleeps is over once anything wakes it, also
// what TCP says to itself, such as that an end was acknowledged; so none sleeps. (Written in get.)

// one_sleeper: which of several that sleep in a receiving call at one end gets what comes is left
// open; so one sleeps there, and none that only peeks until all is there, as another may take it.
// (Author::is_received_by_others, get)

// sent_by_copying: "sendfile, splice: as TCP, by copying": what is written to a file after sendfile
// may be received on TCP, so nothing is. (Written in put.)

// pipe_held: "a splice that waits for bytes does not hold the pipe": over TCP other calls on that
// pipe hang until it is over, and a script that hangs over TCP is not compared. (Written in
// Comparer::compare.)

// shared_set: "Of a set of epoll that several processes use ...": a child closes the sets that it
// inherits, before all else. (Written where the generator forks.)

// dissolved_elsewhere: "A connection that one process dissolves ...": a socket that another process
// has too is not connected to no address. (Written where the generator sets options.)

// dissolved_after_the_peer: "A send after connect to AF_UNSPEC of a connection that the peer had
// closed ...": such a connection is not connected to no address. (Written there too.)

// connection_beside: "IPV6_V6ONLY ...: the kernel's, of the connection beside", which may still
// stand where TCP's is over, when this could be set again, or be over where that stands. (Written
// in set_option.)

// loader: "The dynamic loader says which libraries it could not open": no program is executed by
// one whose standard error is something else and whose numbers are few. (Written in processes.)

// state_acknowledged: when a FIN is acknowledged is left open, so TCP_INFO's state is told without
// that. (Written in settled_state.)

// urgent: "its place among the other bytes is lost": urgent bytes go where nothing else is on the
// way, and where no sleeper may have received some already. (Written in send_urgently and, as its
// author may be wrong about who sleeps, in the controller.)

}  // namespace posix_fuzz
