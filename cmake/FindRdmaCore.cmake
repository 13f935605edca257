# Finds rdma-core's libraries for programs and makes the targets RdmaCore::ibverbs and RdmaCore::rdmacm.
# leat is built with this file, and installs it for those who link leat_static.
find_path(RdmaCore_IBVERBS_INCLUDE_DIR infiniband/verbs.h)
find_library(RdmaCore_IBVERBS_LIBRARY ibverbs)
find_path(RdmaCore_RDMACM_INCLUDE_DIR rdma/rdma_cma.h)
find_library(RdmaCore_RDMACM_LIBRARY rdmacm)
mark_as_advanced(RdmaCore_IBVERBS_INCLUDE_DIR RdmaCore_IBVERBS_LIBRARY
                 RdmaCore_RDMACM_INCLUDE_DIR RdmaCore_RDMACM_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RdmaCore
  REQUIRED_VARS RdmaCore_IBVERBS_LIBRARY RdmaCore_IBVERBS_INCLUDE_DIR
                RdmaCore_RDMACM_LIBRARY RdmaCore_RDMACM_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Install libibverbs-dev and librdmacm-dev.")

if(RdmaCore_FOUND AND NOT TARGET RdmaCore::ibverbs)
  add_library(RdmaCore::ibverbs UNKNOWN IMPORTED)
  set_target_properties(RdmaCore::ibverbs PROPERTIES
    IMPORTED_LOCATION "${RdmaCore_IBVERBS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${RdmaCore_IBVERBS_INCLUDE_DIR}")
  add_library(RdmaCore::rdmacm UNKNOWN IMPORTED)
  set_target_properties(RdmaCore::rdmacm PROPERTIES
    IMPORTED_LOCATION "${RdmaCore_RDMACM_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${RdmaCore_RDMACM_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES RdmaCore::ibverbs)
endif()
