// longjmp and its kin: a program may leave a call of ours from the handler of a signal.
#include <csetjmp>

#include "preload/call.h"
#include "preload/end_state.h"

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise, and leave one of the functions out.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,readability-inconsistent-declaration-parameter-name)
extern "C" [[noreturn]] LEAT_EXPORT void __longjmp_chk(__jmp_buf_tag* frame, int value) noexcept;

LEAT_CALL void longjmp(__jmp_buf_tag* frame, int value) noexcept {
  note_jump();
  real().longjmp(frame, value);
  __builtin_unreachable();
}

LEAT_CALL void _longjmp(__jmp_buf_tag* frame, int value) noexcept { longjmp(frame, value); }

LEAT_CALL void siglongjmp(__jmp_buf_tag* frame, int value) noexcept { longjmp(frame, value); }

void __longjmp_chk(__jmp_buf_tag* frame, int value) noexcept {
  note_jump();
  real().longjmp_checked(frame, value);
  __builtin_unreachable();
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,readability-inconsistent-declaration-parameter-name)
