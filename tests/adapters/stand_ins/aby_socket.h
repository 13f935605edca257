// The class as ABY declares it by name elsewhere.
#pragma once

#include "leat/adapters/aby.h"

class CSocket : public leat::adapters::AbySocket<CSocket> {
 public:
  using AbySocket::AbySocket;
};
