// The process: exit codes and signals.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

extern char** environ;

namespace scanserve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A scanserved whose output, both streams as one, the test reads.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    arguments.insert(arguments.begin(), SCANSERVED);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, SCANSERVED, &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
    close(output_);
  }

  // Reads until the output has `text`; false when it ends first.
  bool ReadUntil(const std::string& text) {
    while (text_.find(text) == std::string::npos) {
      char buffer[512];
      const ssize_t n = read(output_, buffer, sizeof(buffer));
      if (n <= 0) return false;
      text_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }

  void Signal(int number) const { kill(pid_, number); }

  // The exit code; -1 when a signal ended the process.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int ReadToEnd() {
    ReadUntil("\x01 never printed");
    return Wait();
  }
  const std::string& text() const { return text_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string text_;
};

std::vector<std::string> WithPorts(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--grpc-port=0", "--metrics-port=0", "--threads=1"});
  return more;
}

TEST(ScanservedTest, PrintsHelpAndVersionAndExitsWith0) {
  Process version({"--version"});
  EXPECT_EQ(version.ReadToEnd(), 0);
  EXPECT_THAT(version.text(), StartsWith("scanserved "));
  Process help({"--help"});
  EXPECT_EQ(help.ReadToEnd(), 0);
  EXPECT_THAT(help.text(), HasSubstr("--max-message-bytes"));
}

TEST(ScanservedTest, ExitsWith2OnWrongUsage) {
  Process process({"--grpc-port=high"});
  EXPECT_EQ(process.ReadToEnd(), 2);
  EXPECT_THAT(process.text(), HasSubstr("--grpc-port: 'high' given, expected an integer"));
}

TEST(ScanservedTest, ExitsWith4WhenItCannotListen) {
  // No address of this machine: reserved for documentation.
  Process process(WithPorts({"--grpc-address=192.0.2.1"}));
  EXPECT_EQ(process.ReadToEnd(), 4);
  EXPECT_THAT(process.text(), HasSubstr("192.0.2.1"));
}

TEST(ScanservedTest, ExitsWith5WithoutTheGpuThatItMustHave) {
  Process process(WithPorts({"--device=cuda"}));
  EXPECT_EQ(process.ReadToEnd(), 5);
  EXPECT_THAT(process.text(), HasSubstr("--device=cuda"));
}

TEST(ScanservedTest, DrainsAndExitsWith0OnTheFirstSignal) {
  for (const int number : {SIGTERM, SIGINT}) {
    Process process(WithPorts());
    ASSERT_TRUE(process.ReadUntil("gRPC on ")) << process.text();
    process.Signal(number);
    EXPECT_EQ(process.ReadToEnd(), 0);
    EXPECT_THAT(process.text(), HasSubstr("drained"));
  }
}

TEST(ScanservedTest, ASignalDuringTheStartIsNotLost) {
  Process process(WithPorts());
  process.Signal(SIGTERM);
  // Either before main has blocked it, or drained.
  const int code = process.ReadToEnd();
  EXPECT_TRUE(code == 0 || code == -1) << code;
}

TEST(ScanservedTest, TheSecondSignalEndsItAtOnce) {
  for (const int number : {SIGTERM, SIGINT}) {
    Process process(WithPorts({"--drain-delay=3600"}));
    ASSERT_TRUE(process.ReadUntil("gRPC on ")) << process.text();
    process.Signal(SIGTERM);
    ASSERT_TRUE(process.ReadUntil("draining")) << process.text();
    process.Signal(number);
    EXPECT_EQ(process.ReadToEnd(), 128 + number);
  }
}

}  // namespace
}  // namespace scanserve
