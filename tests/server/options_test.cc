#include "server/options.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments,
                                  const Variables& variables = {}) {
  return ParseCommandLine(arguments, [&](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  });
}

// The value of the row's field as text.
std::string ValueOf(const OptionRow& row, const ServerOptions& options) {
  return std::visit([&](auto member) { return absl::StrCat(options.*member); }, row.field);
}

// Two legal values of the row, neither the default.
std::vector<std::string> TwoValues(const OptionRow& row) {
  if (row.flag == "--device") return {"cpu", "cuda"};
  if (row.flag == "--log-format") return {"ISO8601", "ISO8601"};
  if (row.flag == "--log-verbose") return {"1", "1"};
  if (std::holds_alternative<bool ServerOptions::*>(row.field)) return {"false", "0"};
  if (std::holds_alternative<std::string ServerOptions::*>(row.field)) return {"abc", "def"};
  return {"17", "23"};
}

class EachOptionTest : public ::testing::TestWithParam<size_t> {
 protected:
  const OptionRow& row() const { return OptionTable()[GetParam()]; }
  // What `text` becomes when it is given on the command line alone.
  std::string Meaning(const std::string& text) const {
    return ValueOf(row(), Parse({absl::StrCat(row().flag, "=", text)})->options);
  }
};

TEST_P(EachOptionTest, FlagBeatsEnvironmentBeatsDefault) {
  const std::vector<std::string> values = TwoValues(row());
  const std::string fallback = ValueOf(row(), ServerOptions());
  const Variables variables = {{row().EnvironmentName(), values[0]}};
  EXPECT_EQ(ValueOf(row(), Parse({})->options), fallback);
  const auto by_environment = Parse({}, variables);
  ASSERT_TRUE(by_environment.ok()) << by_environment.status();
  EXPECT_EQ(ValueOf(row(), by_environment->options), Meaning(values[0]));
  EXPECT_NE(Meaning(values[0]), fallback);
  const auto by_flag = Parse({row().flag, values[1]}, variables);
  ASSERT_TRUE(by_flag.ok()) << by_flag.status();
  EXPECT_EQ(ValueOf(row(), by_flag->options), Meaning(values[1]));
}

TEST_P(EachOptionTest, AFlagWithTheDefaultsValueStillBeatsTheEnvironment) {
  const std::string fallback = ValueOf(row(), ServerOptions());
  if (fallback.empty()) return;  // cannot be said on a command line
  const Variables variables = {{row().EnvironmentName(), TwoValues(row())[0]}};
  const auto line = Parse({absl::StrCat(row().flag, "=", fallback)}, variables);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(ValueOf(row(), line->options), fallback);
}

TEST_P(EachOptionTest, ABadValueIsRefusedByTheNameItCameUnder) {
  if (std::holds_alternative<std::string ServerOptions::*>(row().field) && row().allowed.empty()) {
    EXPECT_TRUE(Parse({row().flag, "any text"}).ok());
    return;
  }
  for (const std::string bad : {"nonsense", "-1", "1e99", "7x"}) {
    const auto by_flag = Parse({absl::StrCat(row().flag, "=", bad)});
    ASSERT_FALSE(by_flag.ok()) << bad;
    EXPECT_EQ(by_flag.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(by_flag.status().message()),
                StartsWith(absl::StrCat(row().flag, ": '", bad, "' given, expected ")));
    const auto by_environment = Parse({}, {{row().EnvironmentName(), bad}});
    ASSERT_FALSE(by_environment.ok()) << bad;
    EXPECT_THAT(std::string(by_environment.status().message()),
                StartsWith(row().EnvironmentName()));
  }
}

TEST_P(EachOptionTest, HelpShowsFlagVariableAndText) {
  const std::string help = Parse({"--help"})->text;
  EXPECT_THAT(help, HasSubstr(row().flag + " "));
  EXPECT_THAT(help, HasSubstr(absl::StrCat("$", row().EnvironmentName())));
  EXPECT_THAT(help, HasSubstr(row().help.substr(0, 20)));
}

INSTANTIATE_TEST_SUITE_P(Options, EachOptionTest, ::testing::Range<size_t>(0, OptionTable().size()),
                         [](const auto& parameter) {
                           return OptionTable()[parameter.param].EnvironmentName().substr(10);
                         });

TEST(OptionsTest, EveryFieldHasOneRow) {
  std::set<std::string> flags;
  for (const OptionRow& row : OptionTable()) EXPECT_TRUE(flags.insert(row.flag).second) << row.flag;
  // Setting every row must leave no two of them on one field.
  ServerOptions changed;
  for (const OptionRow& row : OptionTable()) {
    const std::string before = ValueOf(row, changed);
    EXPECT_EQ(before, ValueOf(row, ServerOptions())) << row.flag << " shares its field";
    changed = [&] {
      ServerOptions next = changed;
      const auto line = Parse({absl::StrCat(row.flag, "=", TwoValues(row)[0])});
      std::visit([&](auto member) { next.*member = line->options.*member; }, row.field);
      return next;
    }();
  }
}

TEST(OptionsTest, ABareBooleanFlagMeansTrue) {
  const Variables variables = {{"SCANSERVE_ALLOW_METRICS", "false"}};
  EXPECT_FALSE(Parse({}, variables)->options.allow_metrics);
  EXPECT_TRUE(Parse({"--allow-metrics"}, variables)->options.allow_metrics);
}

TEST(OptionsTest, AnEmptyVariableCountsAsAbsent) {
  EXPECT_EQ(Parse({}, {{"SCANSERVE_GRPC_PORT", ""}})->options.grpc_port, 8001);
}

TEST(OptionsTest, RefusesWhatItDoesNotKnow) {
  const auto unknown = Parse({"--grpc-prot=1"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("--grpc-prot"));
  EXPECT_FALSE(Parse({"stray"}).ok());
}

TEST(OptionsTest, PortsEndAt65535) {
  EXPECT_EQ(Parse({"--grpc-port=65535"})->options.grpc_port, 65535);
  EXPECT_EQ(std::string(Parse({"--grpc-port=65536"}).status().message()),
            "--grpc-port: '65536' given, expected an integer from 0 to 65535");
}

TEST(OptionsTest, VersionIsTextAndNothingElse) {
  EXPECT_THAT(Parse({"--version"})->text, StartsWith("scanserved "));
}

}  // namespace
}  // namespace scanserve
