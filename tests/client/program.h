// Runs the programs of this build, and a server for them in the process of the test.
#pragma once

#include <memory>
#include <string>

#include "server/server.h"

namespace scanserve {

struct Finished {
  int code = -1;     // exit code; -1 when it did not exit by itself
  std::string text;  // what it printed, standard error included
};

// `command` begins with the name of a program of this build; the shell reads it.
Finished RunProgram(const std::string& command);

// On loopback and ports of the system's choice.
std::unique_ptr<Server> StartServer();
std::string AddressOf(const Server& server);
std::string MetricsAddressOf(const Server& server);

}  // namespace scanserve
