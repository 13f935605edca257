# leat::names makes a C program leat's by names: its files include leat/names.h first, and the program does not link if one was
# compiled without, as a file of another target. cmake/leat-names.pc.in gives the same for pkg-config.

# The names that leat/names.h renames, and what the compiler makes of them with _FORTIFY_SOURCE.
set(leat_wraps -Wl)
foreach(name socket bind listen accept accept4 connect shutdown close send sendto sendmsg recv recvfrom recvmsg read write readv
    writev poll ppoll select pselect epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 setsockopt getsockopt
    getsockname getpeername fcntl fcntl64 ioctl __poll_chk __ppoll_chk __read_chk __recv_chk __recvfrom_chk)
  string(APPEND leat_wraps ",--wrap=${name}")
endforeach()

add_library(leat_names INTERFACE)
add_library(leat::names ALIAS leat_names)
set_target_properties(leat_names PROPERTIES EXPORT_NAME names)
target_compile_options(leat_names INTERFACE "$<$<COMPILE_LANGUAGE:C>:SHELL:-include leat/names.h>")
target_link_options(leat_names INTERFACE ${leat_wraps})
target_link_libraries(leat_names INTERFACE leat)
